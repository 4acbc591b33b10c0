"""The figures of `rebalance`, from the records of handlers and the history of etcd. Times go in as ns since boot.

The **pause** of a partition that moved, and always had a backlog, is from the last start under the old epoch to the
first one under the new. The usual time between two starts isn't subtracted: `measure_between` measures it. So the pause
is too long rather than too short, by up to two such intervals.

The **wait** is from the put to the handler's start, of messages that were put while anything moved: of queues that
moved, and as a control of those that didn't, in the same seconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.proof.figures import Figures, percentile
from evenlane.engine.proof.load.arrivals import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlane.engine.proof.cluster.history import Reign
    from evenlane.engine.proof.cluster.node import CatchUpEnd
    from evenlane.engine.proof.cluster.records import HandlerRecord

INTERVAL_NS = SECOND // 10  # between two appends to the settle log


class Move(NamedTuple):
    """A partition that went from one owner to another: under which epochs, and when the old one's key was deleted."""

    partition: int
    old: int
    new: int
    released: int
    taken: int


def find_moved(before: Mapping[int, str], after: Mapping[int, str]) -> set[int]:
    """Return the partitions that the plans give to different nodes."""
    return {partition for partition, owner in after.items() if before.get(partition) != owner}


def moves(reigns: Iterable[Reign], start: int, end: int) -> list[Move]:
    """Return the moves whose new owner key was created in [start, end)."""
    last: dict[int, Reign] = {}
    found: list[Move] = []
    for reign in reigns:
        before = last.get(reign.partition)
        if before is not None and before.deleted is not None and start <= reign.created < end:
            found.append(Move(reign.partition, before.epoch, reign.epoch, before.deleted, reign.created))
        last[reign.partition] = reign
    return found


def pauses(waiting: Sequence[HandlerRecord], moves: Iterable[Move]) -> dict[int, int]:
    """The pause of each moved partition in ns, by the begins of messages whose backlog never ended."""
    last: dict[tuple[int, int], int] = {}
    first: dict[tuple[int, int], int] = {}
    for record in waiting:
        key = record.partition, record.epoch
        last[key] = record.at
        first.setdefault(key, record.at)
    return {
        move.partition: first[move.partition, move.new] - last[move.partition, move.old]
        for move in moves
        if (move.partition, move.old) in last and (move.partition, move.new) in first
    }


def stages(waiting: Sequence[HandlerRecord], begun: Sequence[HandlerRecord], moves: Sequence[Move]) -> Figures:
    """The parts of the pauses: from the last start to the release, to the new owner's key, to the first start; p99
    each.
    """
    last = {(record.partition, record.epoch): record.at for record in waiting}
    first = first_starts(begun, moves)
    stopped = (move.released - last[move.partition, move.old] for move in moves if (move.partition, move.old) in last)
    opened = (first[move.partition] - move.taken for move in moves if move.partition in first)
    taken = (move.taken - move.released for move in moves)
    found = {"to_release": stopped, "to_take": taken, "to_start": opened}
    return {f"{name}_p99_ms": percentile(sorted(ns / MILLISECOND for ns in each), 0.99) for name, each in found.items()}


def measure_between(waiting: Sequence[HandlerRecord], until: int) -> float | None:
    """The median time between two starts of one partition before `until`, in ms."""
    last: dict[int, int] = {}
    gaps: list[int] = []
    for record in waiting:
        if record.at < until:
            if record.partition in last:
                gaps.append(record.at - last[record.partition])
            last[record.partition] = record.at
    return median(gaps) / MILLISECOND if gaps else None


def first_starts(begun: Iterable[HandlerRecord], moves: Iterable[Move]) -> dict[int, int]:
    """Return the first start of each partition under its new epoch; `begun` in the order of time."""
    moved_to = {(move.partition, move.new) for move in moves}
    found: dict[int, int] = {}
    for record in begun:
        if (record.partition, record.epoch) in moved_to:
            found.setdefault(record.partition, record.at)
    return found


def count_repeatable(records: Iterable[HandlerRecord], node: str, died: int) -> int:
    """The bound D for a killed node: messages in flight, and those that ended within a settle interval."""
    running: Counter[tuple[int, str, int]] = Counter()
    late = 0
    for record in records:
        if record.node == node and record.at <= died:
            running[record.message] += 1 if record.began else -1
            late += not record.began and died - record.at <= INTERVAL_NS
    return sum(running.values()) + late


def measure_pauses(begun: Iterable[HandlerRecord], moves: Sequence[Move]) -> list[float]:
    """Return, for each partition, the time from the deletion of the old owner key to the first start under the new one,
    in s, sorted; partitions without a start are left out.
    """
    first = first_starts(begun, moves)
    return sorted((first[move.partition] - move.released) / SECOND for move in moves if move.partition in first)


def measure_feeding(moves: Iterable[Move], caught_up: Iterable[CatchUpEnd]) -> Figures:
    """From the first new owner's key to the last backlog that is fed again."""
    taken = {move.partition: move.taken for move in moves}
    later = [each for each in caught_up if each.partition in taken and each.at >= taken[each.partition]]
    if not later:
        return {"fed_again": 0, "caught_up_s": None, "caught_up_s_a_million": None}
    messages = sum(each.messages for each in later)
    seconds = (max(each.at for each in later) - min(taken.values())) / SECOND
    return {"fed_again": messages, "caught_up_s": seconds, "caught_up_s_a_million": seconds * 1e6 / messages}


def count_held(records: Iterable[HandlerRecord], moves: Iterable[Move]) -> Figures:
    """Count messages whose handlers ran while their partition moved: how many they are, how often they began again, and
    how many other messages of their partition were started under the new epoch before they ended.
    """
    ordered = sorted(records, key=lambda record: record.at)
    by_message: dict[tuple[int, str, int], list[HandlerRecord]] = defaultdict(list)
    for record in ordered:
        if record.held:
            by_message[record.message].append(record)
    across = more = others = 0
    for move in moves:
        for each in by_message.values():
            ends = [record.at for record in each if not record.began]
            if each[0].partition == move.partition and each[0].epoch == move.old and ends and ends[0] > move.taken:
                across += 1
                more += sum(record.began for record in each) - 1
                others += sum(
                    record.began and record.epoch == move.new and record.partition == move.partition
                    for record in ordered
                    if record.at < ends[0]
                )
    return {"held": across, "held_begun_again": more, "begun_beside_held": others}
