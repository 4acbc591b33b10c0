"""The figures of `live`, read from the records of handlers. Times go in as ns since boot.

An edit's latency on a node is the time from the beginning of its write to etcd until the node's first decision under
the new rule, as its handler starts show it. *Marks* are starts that only one of the two rules allows. Where the new
rule forbids them (pause, less quota), the latency ends with the last mark; where the old one did (resume, more quota),
with the first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.proof.figures import begins
from evenlane.engine.proof.load.arrivals import SECOND
from evenlane.engine.proof.scenarios.live.load import LOW, LOW_QPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlane.engine.proof.cluster.history import Reign
    from evenlane.engine.proof.cluster.records import HandlerRecord
    from evenlane.engine.proof.scenarios.live.edits import Edit

    _Measure = Callable[["Edit", "Marks", set[str], int], list["Latency"]]

AROUND_NS = SECOND  # a node is judged if it owned part of the topic for this long before and after the write

Marks = dict[tuple[str, str], list[int]]  # by project and node, in the order of time
_INTERVAL = int(SECOND / LOW_QPS)  # of the low quota on a node that has all of it; a late start may be closer
_WEIGHT_GAP = SECOND // 10  # between starts: 16 ms at 50 times the weight, seconds at the low one
_ROW = 3  # starts in a row that distinguish the higher rate from chance


class Latency(NamedTuple):
    """An edit's latency on a node. `missed`: nothing showed the new rule before the topic's next edit."""

    edit: Edit
    node: str
    ns: int
    missed: bool = False


# ---- marks


def starts(records: Iterable[HandlerRecord], matches: Callable[[HandlerRecord], bool] = lambda _: True) -> Marks:
    found: Marks = defaultdict(list)
    for record in begins(records):
        if matches(record):
            found[record.project, record.node].append(record.at)
    return found


def find_close_starts(of: Mapping[tuple[str, str], Sequence[int]], span: int, count: int = 2) -> Marks:
    """The starts that are the last of `count` in a row within less than `span` ns."""
    return {
        key: [at for before, at in zip(times, times[count - 1 :], strict=False) if at - before < span]
        for key, times in of.items()
    }


def find_overlaps(records: Iterable[HandlerRecord]) -> Marks:
    """The starts while the same node was handling another message of the same project."""
    running: dict[tuple[str, str], int] = defaultdict(int)
    found: Marks = defaultdict(list)
    for record in sorted(records, key=lambda each: (each.at, each.began)):
        key = record.project, record.node
        if record.began and running[key] > 0:
            found[key].append(record.at)
        running[key] += 1 if record.began else -1
    return found


# ---- the nodes that are judged


class Owners:
    """The owners of partitions, by the history of etcd. `died` has the times at which nodes were killed; afterwards
    they own nothing.
    """

    def __init__(self, reigns: Iterable[Reign], died: Mapping[str, int]) -> None:
        self._of: dict[int, list[Reign]] = defaultdict(list)
        self._died = died
        for reign in reigns:
            self._of[reign.partition].append(reign)

    def throughout(self, partitions: Iterable[int], start: int, end: int) -> set[str]:
        """Nodes that owned one of these partitions all the time from `start` to `end`."""
        return {
            reign.owner
            for partition in partitions
            for reign in self._of.get(partition, ())
            if reign.created <= start and (reign.deleted is None or reign.deleted >= end)
            if end <= self._died.get(reign.owner, end)
        }


# ---- latencies


def measure_until_last(edit: Edit, marks: Marks, owners: set[str], start: int, *, strict: bool = True) -> list[Latency]:
    """The latencies of a change that forbids these marks, from `start` on. If it is `strict`, a node with a mark more
    than a second later is judged, too, whatever it owns: shares differ where a node has just begun to own something.
    """
    found = []
    for (project, node), times in marks.items():
        if project != edit.name:
            continue
        last = bisect_left(times, edit.until)
        late = times[last - 1] - start if last and times[last - 1] >= start else 0
        if node in owners or (strict and late > AROUND_NS):
            found.append(Latency(edit, node, late))
    return found


def measure_until_first(edit: Edit, marks: Marks, owners: set[str], start: int) -> list[Latency]:
    """The latencies of a change that allows these marks, from `start` on."""
    found = []
    for node in sorted(owners):
        times = marks.get((edit.name, node), [])
        first = bisect_right(times, start)
        missed = first == len(times) or times[first] >= edit.until
        found.append(Latency(edit, node, (edit.until if missed else times[first]) - start, missed))
    return found


# ---- rules


class Rules:
    """The rules that a node followed, read from its starts. `records` are those of edited topics; `starts` are all
    their begins, `low` those of the lower band.
    """

    def __init__(self, records: Iterable[HandlerRecord]) -> None:
        records = list(records)
        self.starts = starts(records)
        self.low = starts(records, lambda each: each.band == LOW)
        first, last, mostly_last = measure_until_first, measure_until_last, partial(measure_until_last, strict=False)
        parallel = find_overlaps(records)
        self._of: Mapping[str, tuple[_Measure, Marks]] = {
            "pause": (last, self.starts),
            "resume": (first, self.starts),
            "quota down": (last, find_close_starts(self.starts, _INTERVAL // 2)),
            "quota up": (first, find_close_starts(self.starts, _INTERVAL, _ROW)),
            "concurrency down": (last, parallel),
            "concurrency up": (first, parallel),
            "weight down": (mostly_last, find_close_starts(self.starts, _WEIGHT_GAP)),
            "weight up": (first, find_close_starts(self.starts, 2 * _WEIGHT_GAP, _ROW)),
            "ageing on": (first, self.low),
            "ageing off": (mostly_last, self.low),
            "delete": (last, self.starts),
            "put back": (first, self.starts),
        }

    def latencies(self, edit: Edit, owners: set[str], start: int) -> list[Latency]:
        """The edit's latencies, counted from `start`, on nodes that are owners throughout."""
        measure, marks = self._of[edit.change]
        return measure(edit, marks, owners, start)


# ---- what holds after it


def count(marks: Marks, project: str, start: int, end: int) -> int:
    """Over all nodes, in [start, end)."""
    each = (times for (name, _), times in marks.items() if name == project)
    return sum(max(0, bisect_left(times, end) - bisect_left(times, start)) for times in each)


def longest_gap(times: Iterable[int]) -> int:
    """The longest time, in ns, between two of these, which are sorted; 0 if there are fewer."""
    return max((after - before for before, after in pairwise(times)), default=0)


def merge_marks(marks: Marks, project: str) -> list[int]:
    """Over all nodes, in the order of time."""
    return sorted(at for (name, _), times in marks.items() if name == project for at in times)
