"""Checks the promises while a simulation runs. This module checks L, O at each append to a settle log, and times to
live; the checkers of this folder and of tests/support/promises check the others.

It knows only what the servers have carried out and what handlers did, never a node's own view.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from evenlane.engine.core.records import settle_record
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.varint_runs import unpack_runs
from tests.simulation.line_names import name_of_line, name_of_log, uid_of
from tests.simulation.loop import NODE, SECOND
from tests.simulation.owners import Owners
from tests.support.promises.attempts import Attempts
from tests.support.promises.history import Broken, Fault, Item, Line, Rules, Run, unended
from tests.support.promises.key_order import KeyOrder
from tests.support.promises.progress import Progress
from tests.support.promises.repeats import Repeats

_CLOCKS = SECOND  # within which nodes can't tell the order of arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.core.records.settle_record import SettleRecord
    from evenlane.engine.store.memory.stream import MemoryStream
    from tests.simulation.etcd import SimEtcd
    from tests.simulation.loop import SimLoop
    from tests.support.promises.history import Bounds, How


class Promises:
    """All checkers of one simulation for one cluster, which handles each message as if it were alone.

    `acked` are the acknowledged puts, without those that a replaced or rolled back stream lost. `topics` are by
    project. `poison` are the messages that kill their process, with their projects; the `unsteady` ones fail, too.
    `clock` is the server's, in unix ns.
    """

    def __init__(
        self,
        loop: SimLoop,
        etcd: SimEtcd,
        cluster: str,
        bounds: Bounds,
        note: Callable[..., None],
        clock: Callable[[], int],
        topics: Mapping[str, Rules],
        poison: Mapping[str, str],
        unsteady: Collection[str] = (),
    ) -> None:
        self._loop, self._note, self._clock, self._topics = loop, note, clock, topics
        self._settle = bounds.settle
        self.lines: dict[str, Line] = {}
        self._retries: dict[int, Item] = {}  # of the subscription's own stream
        self.acked: dict[str, None] = {}
        self.ended: set[str] = set()  # handled, dead, expired or dropped
        self.dead: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self._purges: list[tuple[str, str | None, int]] = []
        self.jumped = 0  # ns by which the server's clock has jumped, either way
        self.broken: Broken | None = None
        self.owners = Owners(loop, cluster, etcd.lives, self.fail, note, self.counts, bounds, self.faults)
        self.attempts = Attempts(
            lambda: loop.now, self.fail, topics, poison, bounds, self.faults, self._unsettled, unsteady
        )
        self._repeats = Repeats(self.fail, bounds, self.faults, self.owners.without_owner)
        self._order = KeyOrder(lambda: loop.now, self.owners.covers, self.fail, self._may_be_over)
        self._progress = Progress(lambda: loop.now, self.fail, bounds.waiting)

    def fail(self, promise: str, what: str) -> None:
        """Record a broken promise, unless there is one. It ends the simulation at its next step."""
        if self.broken is None:
            self.broken = Broken(promise, f"{what}, at {self._loop.time():.6f} s")

    # ---- the store

    def line(self, name: str) -> Line:
        """The line of a stream. A stream of retries has one for each partition, too, with the same items."""
        found = self.lines.get(name)
        if found is None:
            found = self.lines[name] = Line()
            if name.startswith("AGAIN"):
                found.items = self._retries
        return found

    def _passes_over(self, _stream: str, _origin: str | None) -> bool:
        """Whether a message that is stored isn't for this subscription."""
        return False

    def _starts_passed_over(self, item: Item) -> bool:
        """Whether a handler starts for a message that isn't for this subscription."""
        return item.passed_over

    def stored(self, stream: MemoryStream, receipt: Receipt, subject: str, headers: bytes) -> None:
        origin = h.value(headers, h.ORIGIN)
        if not stream.name.startswith(("LANES", "LATER", "AGAIN", "DEAD")):
            return
        uid, dead = uid_of(headers, copied=origin is not None), stream.name.startswith("DEAD")
        passed_over = self._passes_over(stream.name, origin)
        if origin is not None and not passed_over:
            self._copied(uid, origin, dead=dead)
        if dead:
            self._died(uid, subject, h.value(headers, h.REASON) or "")
        if receipt.duplicate or dead:
            return
        line = self.line(stream.name)
        line.created = stream.created
        due, expires = h.number(headers, h.DUE, stream.last_at), h.number(headers, h.EXPIRES, 0)
        project, _, priority = subject.split(".")[3:6]
        item = line.items[receipt.sequence] = Item(
            uid, stream.last_at, project, priority, self._loop.now, passed_over, due=due, expires=expires,
            is_delayed=not subject.startswith("lanes."), passed_over=passed_over,
        )  # fmt: skip
        key = h.value(headers, h.KEY)
        if key is not None and self._topics.get(project, Rules()).ordered:
            self._order.put((project, key, priority), item, delayed=item.is_delayed)
        self.attempts.put(uid, project, _CLOCKS + self.jumped if line.broken else 0)

    def _copied(self, uid: str, origin: str, *, dead: bool) -> None:
        name, _, sequence = origin.rpartition(":")
        item = self.line(name).items.get(int(sequence))
        if item is not None and item.uid == uid:
            item.finished = True
            if not dead:
                self._order.copied(item)
            self._order.ended(item)

    def _died(self, uid: str, subject: str, reason: str) -> None:
        self.counts["dead"] += 1
        self.counts[f"dead: {reason}"] += 1
        self._note("dead", id=uid, reason=reason)
        self.ended.add(uid)
        self.dead.add(uid)
        self.attempts.dead(uid, subject.rpartition(".")[2], reason)

    def logged(self, subject: str, raw: bytes) -> None:
        name = name_of_log(subject)
        line, record = self.line(name), settle_record.decode(raw)
        self.counts["appends"] += 1
        if record.epoch < line.log_epoch:
            self.fail("O", f"{name} takes a settle of epoch {record.epoch} after one of {line.log_epoch}")
        line.log_epoch = record.epoch
        line.served_by.add((record.epoch, record.lease))
        if record.clean:
            line.served_by.discard((record.epoch, record.lease))
        high = line.items.get(record.high)
        if (line.created and record.created != line.created) or (record.high and high is None):
            return  # the record is void: it is about a stream that is gone
        if high is not None and record.high_at and record.high_at != high.at:
            return
        self._recorded(line, record)
        spans = unpack_runs(record.runs, record.watermark)
        if record.watermark > line.settled_to:
            spans.insert(0, (line.settled_to + 1, record.watermark))
            line.settled_to = record.watermark
        for first, last in spans:
            for sequence in range(first, last + 1):
                self._settled(name, line, sequence)

    def _recorded(self, line: Line, record: SettleRecord) -> None:
        """A record about the very stream is about to count."""

    def _settled(self, name: str, line: Line, sequence: int) -> None:
        item = line.items.get(sequence)
        if item is None:
            self.fail("L", f"{name} {sequence} is settled, although it was never put")
        elif not item.settled:
            item.settled = True
            self.counts["settled"] += 1
            if not item.finished:
                self._over(f"{name} {sequence} ({item.uid})", item)

    def _over(self, what: str, item: Item) -> None:
        """The message is settled although no handler has returned, and no copy is stored."""
        self.ended.add(item.uid)
        if self._dropped(item):
            self.counts["dropped"] += 1
            return
        self.counts["expired"] += 1
        if not self._expired(item):
            self.fail("L", f"{what} is settled, although it hasn't ended")
        elif self._topics[item.project].dead_letter_expired and item.uid not in self.dead:
            self.fail("L", f"{what} has expired, and isn't a dead letter")

    def purged(self, project: str, priority: str | None) -> None:
        """Nodes that receive the purge drop the messages that wait now."""
        self._purges.append((project, priority, self._loop.now))

    def _may_be_over(self, item: Item) -> bool:
        return self._expired(item) or self._dropped(item)

    def _dropped(self, item: Item) -> bool:
        """Whether a purge may have dropped it. Messages put long after the purge are exempt."""
        return any(
            project == item.project and priority in {None, item.priority} and item.stored <= at + self._settle
            for project, priority, at in self._purges
        )

    def _expired(self, item: Item) -> bool:
        """Whether it has expired by the clock of a node that may lag by the server's jumps."""
        return 0 < item.expires <= self._clock() + self.jumped

    def removing(self, stream: MemoryStream, sequences: list[int]) -> None:
        items = self.line(stream.name).items
        for sequence in sequences:
            if not items[sequence].settled:
                uid = items[sequence].uid
                self.fail("L", f"{stream.name} {sequence} ({uid}) is removed, although it isn't durably settled")

    def cut_back(self, name: str, above: int) -> None:
        """The stream loses all messages after `above`, by a fault that promise L doesn't cover."""
        line = self.line(name)
        line.broken = True
        self._order.discard([*line.items.values()])
        for item in line.items.values():
            self.attempts.mark_stale(item.uid)
        for sequence in [s for s in line.items if s > above]:
            self.acked.pop(line.items.pop(sequence).uid, None)
        line.settled_to = min(line.settled_to, above)

    # ---- handlers

    def starts(self, message: Message) -> Run:
        node, now = NODE.get(), self._loop.now
        assert node is not None
        self.counts["started"] += 1
        epoch, attempt = message.epoch, message.attempt
        what = f"{message.stream} {message.sequence} ({message.id}) on {node} under epoch {epoch}"
        name = name_of_line(message.stream, message.partition)
        line = self.line(name)
        run = Run(node, epoch, now, self.owners.starts(what, message.partition, epoch, line), attempt)
        item = line.items.get(message.sequence)
        if item is None or item.uid != message.id:
            self.counts["void"] += 1  # the stream was replaced, and the node doesn't know yet
            self.attempts.mark_stale(message.id)
            return run
        if self._starts_passed_over(item) and not line.broken:
            self.fail("K10", f"{what} starts, although it isn't for this subscription")
        if self._repeats.check(what, line, name, item, attempt, in_place=item.chain is not None):
            self.counts["duplicates"] += 1
            self._note("duplicate", what=what, runs=item.runs)
        self.attempts.starts(what, item.uid, message.project, attempt, run, suspect=message.is_suspect)
        self._order.starts(what, item, run)
        if not self.faults:
            self._check_times(what, message, item, run)
        item.runs.append(run)
        return run

    def _check_times(self, what: str, message: Message, item: Item, run: Run) -> None:
        """Check the times of a start while nothing is wrong."""
        since = self._loop.now - (self._clock() - item.due)
        paused = self.attempts.paused_until(run.node, message.project)
        self._progress.starts(what, item, run, max(since, paused, self.owners.since(message.partition)))
        if 0 < item.expires < self._clock() - self._settle:
            self.fail("K5", f"{what} starts, although it has expired")

    def ends(self, message: Message, run: Run, how: How, after: float = 0) -> None:
        """A handler ends. The message is tried again in `after` seconds at the earliest."""
        run.end, run.how = self._loop.now, how
        run.again = run.end + int(after * SECOND)
        self.counts["ended" if how == "well" else how] += 1
        self._progress.ends(run)
        if how == "paused":
            self.attempts.paused(run.node, message.project, after)
        if how != "well":
            return
        self.ended.add(message.id)
        item = self.line(message.stream).items.get(message.sequence)
        if item is not None and item.uid == message.id:
            item.finished = True
            self._order.ended(item)

    # ---- the end

    def _unsettled(self) -> set[str]:
        return {item.uid for line in self.lines.values() for item in line.items.values() if not item.settled}

    def unfinished(self) -> list[str]:
        """Acknowledged puts that haven't ended, and unsettled messages, for a person to read."""
        waiting = [f"{uid} has not been handled" for uid in unended(self.acked, self.ended)]
        for name, items in {id(line.items): (name, line.items) for name, line in self.lines.items()}.values():
            waiting += [f"{name} {s} ({item.uid}) isn't settled" for s, item in items.items() if not item.settled]
        return waiting
