"""Watches over the promises L, D, O and Z1 (design.md, section 8) while a simulation runs.

It knows only what the servers have carried out and what handlers did, never what a node believes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine import headers as h
from engine import settlelog
from tests.simulation.loop import NODE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.message import Message
    from engine.ports import Receipt
    from engine.stores.memory.stream import MemoryStream
    from ring.coordination import Event
    from tests.simulation.etcd import SimEtcd
    from tests.simulation.loop import Actor, SimLoop


class Broken(AssertionError):
    """A promise doesn't hold; `promise` is its name."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


HARMLESS = frozenset(
    {"watches dropped", "etcd leader", "compaction", "second leader", "acks late", "corrupt key", "clock jump"}
)
"""Faults after which nothing may be handled twice: all goes on, only later."""
SLOWING = frozenset({"acks late", "acks never", "copies refused", "nats cut", "nats down", "nats flaky"})
"""Faults that hold up settles, so that another one meanwhile hits more of them."""
UNANSWERED = frozenset({"acks never", "nats cut", "nats down", "nats flaky"})
NO_ANSWER = 6 * SECOND
"""Only after that long does a node learn that what it asked has been lost."""
LINGERS = 2 * SECOND  # late acks may be under way for so long when acks are quick again


@dataclass(eq=False)
class Fault:
    """What it touches: a node (None: all), a stream (None: all). Times in ns; `end` None while it lasts."""

    kind: str
    start: int
    node: Actor | None = None
    stream: str | None = None
    end: int | None = None


@dataclass(eq=False)
class Run:
    """One handler on one message."""

    node: Actor
    epoch: int
    start: int
    end: int | None = None


@dataclass(eq=False)
class Item:
    """One message as it stands in a stream. `finished`: it may be settled."""

    uid: str
    at: int
    finished: bool = False
    settled: bool = False
    runs: list[Run] = field(default_factory=list)
    blamed: list[tuple[Fault, Actor]] = field(default_factory=list)


class Line:
    """A stream, and what the world knows of its messages, removed ones included."""

    def __init__(self) -> None:
        self.created = ""
        self.items: dict[int, Item] = {}
        self.settled_to = 0
        self.broken = False
        self.log_epoch = 0


@dataclass
class Bounds:
    """In ns. `settle`: how long before a fault a message may have ended and still be handled again; `aftermath`: how
    long after it one that begins may; `recovery`: how long after a fault partitions may change hands; `unowned`: how
    long one may be without owner beyond that.
    """

    settle: int
    aftermath: int
    recovery: int
    unowned: int


class Promises:
    """`acked` are the puts that must end well; what a replaced or rolled back stream lost is taken out of it."""

    def __init__(self, loop: SimLoop, etcd: SimEtcd, env: str, bounds: Bounds, note: Callable[..., None]) -> None:
        self._loop, self._etcd, self._bounds, self._note = loop, etcd, bounds, note
        self._owners = f"/evenlane/{env}/owners/"
        self.lines: dict[str, Line] = {}
        self.acked: dict[str, None] = {}
        self.ended: set[str] = set()  # handled or dead
        self.counts: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.epochs: dict[int, int] = {}  # the newest of each partition
        self.owned: dict[int, tuple[int, int]] = {}  # epoch, lease
        self.unowned_since: dict[int, int] = {}
        self.without_owner: dict[int, list[tuple[int, int]]] = {}  # from when to when
        self.able_since: int | None = None  # since when some node can own something
        self.gaps: list[int] = []  # of partitions that changed hands while nothing was wrong
        self.broken: Broken | None = None

    def fail(self, promise: str, what: str) -> None:
        """The first one counts; it ends the simulation at its next step."""
        if self.broken is None:
            self.broken = Broken(promise, f"{what}, at {self._loop.time():.6f} s")

    # ---- etcd

    def changed(self, event: Event) -> None:
        key = event.item.key
        if not key.startswith(self._owners) or not key.removeprefix(self._owners).isdigit():
            self._note(f"etcd {event.kind}", key=key, value=event.item.value[:160])
            return
        number = int(key.removeprefix(self._owners))
        if event.kind == "delete":
            self.owned.pop(number, None)
            self.unowned_since[number] = self._loop.now
            self._note("unowned", partition=number)
            return
        item = event.item
        if number not in self.owned:
            self.counts["taken"] += 1
            self._note("owned", partition=number, epoch=item.create_revision, value=item.value.decode())
            self.without_owner.setdefault(number, []).append((self.unowned_since.get(number, 0), self._loop.now))
            self._check_gap(number)
        elif self.owned[number][1] != item.lease:
            self.fail("O", f"the owner key of partition {number} is taken while it is another's")
        self.epochs[number] = item.create_revision
        self.owned[number] = (item.create_revision, item.lease)

    def _check_gap(self, number: int) -> None:
        gap = self.gap(number)
        if gap and number in self.unowned_since:
            self.gaps.append(gap)
        if gap > self._bounds.unowned:
            self.fail("Z1", f"partition {number} was without owner for {gap / SECOND:.3f} s while nothing was wrong")

    def gap(self, number: int) -> int:
        """For how long it has had no owner although somebody could own it and no fault had a hand in it."""
        if number in self.owned or self.able_since is None:
            return 0
        since = max(self.unowned_since.get(number, 0), self.able_since)
        for fault in self.faults:
            if fault.end is None:
                return 0
            since = max(since, fault.end + self._bounds.recovery)
        return max(0, self._loop.now - since)

    # ---- the store

    def line(self, name: str) -> Line:
        return self.lines.setdefault(name, Line())

    def stored(self, stream: MemoryStream, receipt: Receipt, headers: bytes) -> None:
        origin = h.value(headers, h.ORIGIN)
        if stream.name.startswith("SETTLED"):
            return
        uid = _uid(headers, copied=origin is not None)
        if origin is not None:
            self._copied(uid, origin, dead=stream.name.startswith("DEAD"))
        if receipt.duplicate or stream.name.startswith("DEAD"):
            return
        line = self.line(stream.name)
        line.created = stream.created
        line.items[receipt.sequence] = Item(uid, stream.last_at)

    def _copied(self, uid: str, origin: str, *, dead: bool) -> None:
        name, _, sequence = origin.rpartition(":")
        item = self.line(name).items.get(int(sequence))
        if item is not None and item.uid == uid:
            item.finished = True
        if dead:
            self.counts["dead"] += 1
            self.ended.add(uid)

    def logged(self, subject: str, raw: bytes) -> None:
        _, env, kind, partition = subject.split(".")
        name = f"{kind.upper()}_{env}_{partition}"
        line, record = self.line(name), settlelog.decode(raw)
        self.counts["appends"] += 1
        if record.epoch < line.log_epoch:
            self.fail("O", f"{name} takes a settle of epoch {record.epoch} after one of {line.log_epoch}")
        line.log_epoch = record.epoch
        high = line.items.get(record.high)
        if (line.created and record.created != line.created) or (record.high and high is None):
            return  # it speaks of a stream that is no more: void
        if high is not None and record.high_at and record.high_at != high.at:
            return
        spans = settlelog.unpack(record.runs, record.watermark)
        if record.watermark > line.settled_to:
            spans.insert(0, (line.settled_to + 1, record.watermark))
            line.settled_to = record.watermark
        for first, last in spans:
            for sequence in range(first, last + 1):
                self._settled(name, line, sequence)

    def _settled(self, name: str, line: Line, sequence: int) -> None:
        item = line.items.get(sequence)
        if item is None:
            self.fail("L", f"{name} {sequence} is settled, though nobody has ever put it")
        elif not item.settled:
            item.settled = True
            self.counts["settled"] += 1
            if not item.finished:
                self.fail("L", f"{name} {sequence} ({item.uid}) is settled, though it hasn't ended well")

    def removing(self, stream: MemoryStream, sequences: list[int]) -> None:
        items = self.line(stream.name).items
        for sequence in sequences:
            if not items[sequence].settled:
                uid = items[sequence].uid
                self.fail("L", f"{stream.name} {sequence} ({uid}) is removed, though it isn't durably settled")

    def cut_back(self, name: str, above: int) -> None:
        """The stream loses what came after `above`, by a fault that promise L doesn't cover."""
        line = self.line(name)
        line.broken = True
        for sequence in [s for s in line.items if s > above]:
            self.acked.pop(line.items.pop(sequence).uid, None)
        line.settled_to = min(line.settled_to, above)

    # ---- handlers

    def starts(self, message: Message) -> Run:
        node, now = NODE.get(), self._loop.now
        assert node is not None
        self.counts["started"] += 1
        number, epoch = message.partition, message.epoch
        run = Run(node, epoch, now)
        what = f"{message.stream} {message.sequence} ({message.id}) on {node} under epoch {epoch}"
        owned, lease = self.owned.get(number, (0, 0))
        if epoch != self.epochs.get(number):
            self.fail("O", f"{what} starts, though the newest epoch is {self.epochs.get(number)}")
        elif epoch != owned:
            self.fail("O", f"{what} starts, though its owner key is gone")
        elif not self._etcd.lives(lease):
            self.fail("O", f"{what} starts after the end of its lease")
        item = self.line(message.stream).items.get(message.sequence)
        if item is None or item.uid != message.id:
            self.counts["void"] += 1  # the stream was replaced, and the node doesn't know it yet
            return run
        self._check_again(what, self.line(message.stream), message.stream, item)
        item.runs.append(run)
        return run

    def _check_again(self, what: str, line: Line, name: str, item: Item) -> None:
        if not item.runs or line.broken:
            return
        self.counts["duplicates"] += 1
        self._note("duplicate", what=what, runs=item.runs)
        if item.settled:
            self.fail("D", f"{what} starts again, though it was durably settled")
            return
        last = item.runs[-1]
        for fault in self.faults:  # each explains one more start for each node that it hit
            if (fault, last.node) not in item.blamed and self._explains(fault, name, last):
                item.blamed.append((fault, last.node))
                return
        how = "still runs" if last.end is None else f"ended at {last.end / SECOND:.6f} s"
        self.fail("D", f"{what} starts again without a fault that explains it: on {last.node} it {how}")

    def _explains(self, fault: Fault, name: str, run: Run) -> bool:
        """Whether the fault touched the former run's node while it ran, or before its end could be settled."""
        if fault.kind in HARMLESS or fault.node not in {None, run.node} or fault.stream not in {None, name}:
            return False
        after = 0 if fault.kind == "crash" else self._bounds.aftermath
        if fault.kind in UNANSWERED:
            after += NO_ANSWER
        since = min(self._unsettled_since(fault, run), self._unowned_at(fault, name)) - self._bounds.settle
        return (run.end is None or run.end >= since) and (fault.end is None or run.start <= fault.end + after)

    def _unowned_at(self, fault: Fault, name: str) -> int:
        """The fault's start, or when the partition lost its owner, if nobody could settle what was handed over."""
        spans = self.without_owner.get(int(name.rpartition("_")[2]), ())
        return next((start for start, end in spans if start <= fault.start <= end), fault.start)

    def _unsettled_since(self, fault: Fault, run: Run) -> int:
        """The fault's start, or that of others by which settles were held up when it came."""
        return min(
            other.start
            for other in self.faults
            if other is fault
            or (
                other.kind in SLOWING
                and other.node in {None, run.node}
                and other.start <= fault.start
                and (other.end is None or other.end + LINGERS >= fault.start - self._bounds.settle)
            )
        )

    def ends(self, message: Message, run: Run, *, well: bool) -> None:
        run.end = self._loop.now
        self.counts["ended" if well else "failed"] += 1
        if not well:
            return
        self.ended.add(message.id)
        item = self.line(message.stream).items.get(message.sequence)
        if item is not None and item.uid == message.id:
            item.finished = True

    # ---- the end

    def unfinished(self) -> list[str]:
        """What keeps the world from being drained: acknowledged puts that haven't ended, and unsettled messages."""
        waiting = [f"{uid} has not been handled" for uid in self.acked if uid not in self.ended]
        for name, line in self.lines.items():
            waiting += [f"{name} {s} ({item.uid}) isn't settled" for s, item in line.items.items() if not item.settled]
        return waiting


def _uid(headers: bytes, *, copied: bool) -> str:
    own = (h.value(headers, h.ID) or "").partition(":")[2].removesuffix(":dead")
    return own.rsplit(":", 3)[0] if copied else own
