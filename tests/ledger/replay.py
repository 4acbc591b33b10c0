"""Replays the ledger of real processes into the checkers of tests/support/promises: repeats (D) and key order (K6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.promises.fault_kinds import KINDS
from tests.support.promises.history import Bounds, Fault, Item, Line, Run
from tests.support.promises.key_order import KeyOrder
from tests.support.promises.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tests.ledger.entries import Entry
    from tests.support.promises.history import How

SECOND = 1_000_000_000
SETTLE_INTERVAL_NS = SECOND // 10
# Dispatch stops when a result has waited for the interval and a second. That counts from when the node has the result:
# later than the handler's entry by as long as the process doesn't run in between.
BOUNDS = Bounds(settle=SETTLE_INTERVAL_NS + SECOND + SECOND // 2, aftermath=SECOND)
_HOW: dict[str, How] = {"ok": "well", "fail": "failed", "cancelled": "cancelled"}


@dataclass(frozen=True)
class NodePid:
    """A process as the ledger knows it."""

    pid: int
    dead: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        return f"process {self.pid}"


def fault(kind: str, pid: int, start: int, end: int | None = None) -> Fault:
    """A fault of a process; without `end`, one of a moment. Times are ns since boot."""
    assert kind in KINDS, kind
    return Fault(kind, start, NodePid(pid), end=start if end is None else end)


def crashes(entries: Sequence[Entry], pids: Iterable[int]) -> list[Fault]:
    """The crashes of these processes, from when the last message was chosen to the last entry.

    A process that can't settle chooses none, but its handlers go on: so settling may have stopped before the last entry
    by more than `BOUNDS`. The crash itself may be noticed later.
    """
    chosen: Counter[int] = Counter()
    for entry in entries:
        chosen[entry.pid] = max(chosen[entry.pid], entry.chosen)
    last = {entry.pid: entry.at for entry in entries}
    return [fault("crash", pid, chosen[pid], last[pid]) for pid in set(pids) if pid in last]


class _Replay:
    """The runs of all handlers. `steps` are called for each start (True) and end of a run, in the order of time."""

    def __init__(self, entries: Iterable[Entry], dead: Collection[int] = ()) -> None:
        self._dead = dead
        self._open: dict[tuple[int, str, int, int], Run] = {}
        self.runs: dict[str, list[tuple[Entry, Run]]] = defaultdict(list)
        self.entries = sorted(entries, key=lambda entry: entry.at)
        self.now = 0

    def play(self, on_start: Callable[[Entry, Run], None], on_end: Callable[[Entry, Run], None]) -> None:
        for entry in self.entries:
            self.now = entry.at
            place = entry.pid, entry.stream, entry.sequence, entry.attempt
            is_end = entry.what in _HOW
            if entry.what == "begin" or (is_end and place not in self._open):  # some handlers note only their ends
                run = self._open[place] = Run(
                    NodePid(entry.pid, entry.pid in self._dead), entry.epoch, entry.at, attempt=entry.attempt
                )
                on_start(entry, run)
                self.runs[entry.id].append((entry, run))
            if is_end:
                run = self._open.pop(place)
                run.end, run.how = entry.at, _HOW[entry.what]
                on_end(entry, run)


def check_repeats(entries: Iterable[Entry], *faults: Fault) -> int:
    """D: a fault of the node that ran a message before explains each repeat of it. Return the number of repeats."""
    wrong: list[str] = []
    repeats = Repeats(lambda _, what: wrong.append(what), BOUNDS, [*faults], {})
    items: dict[tuple[str, int], Item] = {}
    replay, line, count = _Replay(entries), Line(), 0

    def on_start(entry: Entry, run: Run) -> None:
        nonlocal count
        place = entry.stream, entry.sequence
        item = items.setdefault(place, Item(entry.id))
        what = f"{entry.stream} {entry.sequence} ({entry.id}) on {run.node}"
        count += repeats.check(what, line, entry.stream, item, entry.attempt, in_place=True)
        elsewhere = [(each, at) for at, each in replay.runs[entry.id] if (at.stream, at.sequence) != place]
        if not item.runs and elsewhere and not _may_have_copy(repeats, elsewhere):
            wrong.append(f"{what} starts, although it is stored elsewhere, too")
        item.runs.append(run)

    replay.play(on_start, lambda _entry, _run: None)
    assert not wrong, "; ".join(wrong[:5])
    return count


def _may_have_copy(repeats: Repeats, elsewhere: Iterable[tuple[Run, Entry]]) -> bool:
    """Whether a message has a second place for a reason: its copy for another attempt, or a fault of its original."""
    return any(run.how != "well" or repeats.may_repeat(entry.stream, run) for run, entry in elsewhere)


def may_come_again(entries: Iterable[Entry], faults: Iterable[Fault]) -> set[str]:
    """The ids of the messages that faults hit in flight, or whose ends they kept from being settled."""
    repeats = Repeats(lambda *_: None, BOUNDS, [*faults], {})
    replay = _Replay(entries)
    replay.play(lambda *_: None, lambda *_: None)
    return {
        own
        for own, runs in replay.runs.items()
        if any(repeats.may_repeat(entry.stream, run) for entry, run in runs)
    }  # fmt: skip


def check_handled_twice(entries: Sequence[Entry], killed: Iterable[int], *others: Fault) -> list[str]:
    """D: the messages that were handled twice had been in flight in a killed process, or ended too late to be settled.
    (Their copies for the next attempt may have been put, too: both are handled.) Return their ids.
    """
    handled = Counter(entry.id for entry in entries if entry.what == "ok")
    twice = sorted(own for own, count in handled.items() if count > 1)
    unexplained = sorted(set(twice) - may_come_again(entries, [*crashes(entries, killed), *others]))
    assert not unexplained, f"handled twice without a crash: {unexplained[:5]}"
    return twice


def check_key_order(
    entries: Iterable[Entry], keys: Mapping[str, tuple[str, str, str]], killed: Collection[int] = ()
) -> int:
    """K6. `keys`: id -> project, key and priority, in put order. Return how many of these messages have begun."""
    wrong: list[str] = []
    replay = _Replay([entry for entry in entries if entry.id in keys], killed)
    order = KeyOrder(lambda: replay.now, lambda *_: True, lambda _, what: wrong.append(what))
    items = {own: Item(own) for own in keys}
    final = {entry.id: entry for entry in replay.entries}
    places: dict[str, tuple[str, int]] = {}
    succeeded = {entry.id for entry in replay.entries if entry.what == "ok"}
    for own, key in keys.items():
        items[own].finished = own not in final  # it was dead-lettered for deaths before it could begin
        order.put(key, items[own])

    def on_start(entry: Entry, run: Run) -> None:
        item = items[entry.id]
        order.starts(f"{entry.id} of {keys[entry.id]}", item, run)
        if places.setdefault(entry.id, (entry.stream, entry.sequence)) != (entry.stream, entry.sequence):
            order.copied(item)
        _end(entry, run)

    def _end(entry: Entry, run: Run) -> None:
        """A message has ended finally at its first success or, if it never succeeds, with its last attempt, which a
        crash may repeat: its dead letter was stored.
        """
        last = final[entry.id]
        failed_finally = run.how == "failed" and (entry.what, entry.attempt) == (last.what, last.attempt)
        if run.how == "well" if entry.id in succeeded else failed_finally or entry is last:
            items[entry.id].finished = True
            order.ended(items[entry.id])

    replay.play(on_start, _end)
    assert not wrong, "; ".join(wrong[:5])
    return len(final)
