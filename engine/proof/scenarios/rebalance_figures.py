"""The figures of `rebalance`, read from what handlers wrote down and from what etcd told. Times go in as ns since boot.

**Pause** of a partition that moved, of which something waited all the time: from the last start under the old epoch to
the first one under the new. Nothing is taken off for what would have passed between two starts anyway: `between` says
how much that is. So it is too long rather than too short, by up to two such intervals.

**Wait** of the messages that the store took while anything moved: from then to the handler's start; for queues that
moved, and as a control for those that didn't, in the same seconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.proof.scenarios.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.scenarios.figures import Figures, percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlane.engine.proof.scenarios.cluster_history import Reign
    from evenlane.engine.proof.scenarios.cluster_node import CaughtUp
    from evenlane.engine.proof.scenarios.cluster_records import Record

INTERVAL_NS = SECOND // 10  # between two appends to the settle log


class Move(NamedTuple):
    """A partition that went from one owner to another: under which epochs, and when the old one's key was deleted."""

    partition: int
    old: int
    new: int
    released: int
    taken: int


def moved(before: Mapping[int, str], after: Mapping[int, str]) -> set[int]:
    """Partitions that are planned for another node than before."""
    return {partition for partition, owner in after.items() if before.get(partition) != owner}


def moves(reigns: Iterable[Reign], start: int, end: int) -> list[Move]:
    """Those whose new owner's key came in [start, end)."""
    last: dict[int, Reign] = {}
    found: list[Move] = []
    for reign in reigns:
        before = last.get(reign.partition)
        if before is not None and before.deleted is not None and start <= reign.created < end:
            found.append(Move(reign.partition, before.epoch, reign.epoch, before.deleted, reign.created))
        last[reign.partition] = reign
    return found


def begins(records: Iterable[Record]) -> list[Record]:
    """In the order of time."""
    return sorted((record for record in records if record.began), key=lambda record: record.at)


def pauses(waiting: Sequence[Record], moves: Iterable[Move]) -> dict[int, int]:
    """The pause of each partition that moved, in ns, by the begins of messages of which there were always more."""
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


def stages(waiting: Sequence[Record], begun: Sequence[Record], moves: Sequence[Move]) -> Figures:
    """Where the pauses go: from the last start to the release, to the new owner's key, to the first start; p99 each."""
    last = {(record.partition, record.epoch): record.at for record in waiting}
    first = first_starts(begun, moves)
    stopped = (move.released - last[move.partition, move.old] for move in moves if (move.partition, move.old) in last)
    opened = (first[move.partition] - move.taken for move in moves if move.partition in first)
    taken = (move.taken - move.released for move in moves)
    found = {"to_release": stopped, "to_take": taken, "to_start": opened}
    return {f"{name}_p99_ms": percentile(sorted(ns / MILLISECOND for ns in each), 0.99) for name, each in found.items()}


def between(waiting: Sequence[Record], until: int) -> float | None:
    """The median time between two starts of one partition before `until`, in ms."""
    last: dict[int, int] = {}
    gaps: list[int] = []
    for record in waiting:
        if record.at < until:
            if record.partition in last:
                gaps.append(record.at - last[record.partition])
            last[record.partition] = record.at
    return median(gaps) / MILLISECOND if gaps else None


def waits(begun: Iterable[Record], partitions: set[int], start: int, end: int, offset: int) -> list[float]:
    """Of messages in these partitions that the store took in [start, end): until their handler's first start, in ms,
    sorted. `offset` is what has to be added to unix ns to get ns since boot.
    """
    seen: dict[tuple[int, str, int], float] = {}
    for record in begun:
        if record.partition in partitions and start <= record.put + offset < end:
            seen.setdefault(record.message, (record.at - record.put - offset) / MILLISECOND)
    return sorted(seen.values())


def first_starts(begun: Iterable[Record], moves: Iterable[Move]) -> dict[int, int]:
    """When anything was first started of each partition under its new epoch; `begun` in the order of time."""
    wanted = {(move.partition, move.new) for move in moves}
    found: dict[int, int] = {}
    for record in begun:
        if (record.partition, record.epoch) in wanted:
            found.setdefault(record.partition, record.at)
    return found


def spread(values: Sequence[float], name: str) -> Figures:
    """Percentiles of sorted values in ms."""
    return {
        f"{name}_p50_ms": percentile(values, 0.5),
        f"{name}_p99_ms": percentile(values, 0.99),
        f"{name}_max_ms": values[-1] if values else None,
    }


def again(begun: Iterable[Record]) -> int:
    """Begins of messages that had been begun before."""
    counts = Counter(record.message for record in begun)
    return sum(count - 1 for count in counts.values())


def may_come_again(records: Iterable[Record], node: str, died: int) -> int:
    """D's bound for a node that was killed: what it had in flight, and what it had ended within a settle interval."""
    running: Counter[tuple[int, str, int]] = Counter()
    late = 0
    for record in records:
        if record.node == node and record.at <= died:
            running[record.message] += 1 if record.began else -1
            late += not record.began and died - record.at <= INTERVAL_NS
    return sum(running.values()) + late


def handled_again(begun: Iterable[Record], moves: Sequence[Move]) -> list[float]:
    """For each partition, from the deletion of its old owner's key to the first start under the new one, in s, sorted;
    a partition that nothing was started of isn't among them.
    """
    first = first_starts(begun, moves)
    return sorted((first[move.partition] - move.released) / SECOND for move in moves if move.partition in first)


def fed(moves: Iterable[Move], caught_up: Iterable[CaughtUp]) -> Figures:
    """From the first new owner's key to the last backlog that is fed again."""
    taken = {move.partition: move.taken for move in moves}
    told = [each for each in caught_up if each.partition in taken and each.at >= taken[each.partition]]
    if not told:
        return {"fed_again": 0, "caught_up_s": None, "caught_up_s_a_million": None}
    messages = sum(each.messages for each in told)
    seconds = (max(each.at for each in told) - min(taken.values())) / SECOND
    return {"fed_again": messages, "caught_up_s": seconds, "caught_up_s_a_million": seconds * 1e6 / messages}


def held(records: Iterable[Record], moves: Iterable[Move]) -> Figures:
    """What became of messages whose handlers ran while their partition moved, and of the rest of that partition:
    how many they are, how often they were begun again, and what else was started under the new epoch before they
    ended.
    """
    ordered = sorted(records, key=lambda record: record.at)
    by_message: dict[tuple[int, str, int], list[Record]] = defaultdict(list)
    for record in ordered:
        if record.held:
            by_message[record.message].append(record)
    across = more = beside = 0
    for move in moves:
        for each in by_message.values():
            ends = [record.at for record in each if not record.began]
            if each[0].partition == move.partition and each[0].epoch == move.old and ends and ends[0] > move.taken:
                across += 1
                more += sum(record.began for record in each) - 1
                beside += sum(
                    record.began and record.epoch == move.new and record.partition == move.partition
                    for record in ordered
                    if record.at < ends[0]
                )
    return {"held": across, "held_begun_again": more, "begun_beside_held": beside}
