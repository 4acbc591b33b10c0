"""The figures of `live`, read from what handlers wrote down. Times go in as ns since boot.

An edit's latency on a node is the time from the beginning of its write to etcd until the node's first decision under
the new rule, as its handler starts show it. *Marks* are starts that only one of the two rules allows. Where the new
rule forbids them (pause, less quota), the latency ends with the last mark; where the old one did (resume, more quota),
with the first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.proof.scenarios.arrivals import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlane.engine.proof.scenarios.cluster_history import Reign
    from evenlane.engine.proof.scenarios.cluster_records import Record
    from evenlane.engine.proof.scenarios.live_edits import Edit

AROUND_NS = SECOND  # a node is judged if it owned something of the topic so long before and after the write

Marks = dict[tuple[str, str], list[int]]  # by project and node, in the order of time


class Seen(NamedTuple):
    """What became of an edit on a node. `missed`: nothing showed the new rule before the topic's next edit."""

    edit: Edit
    node: str
    ns: int
    missed: bool = False


# ---- marks


def starts(records: Iterable[Record], wanted: Callable[[Record], bool] = lambda _: True) -> Marks:
    found: Marks = defaultdict(list)
    for record in sorted((each for each in records if each.began), key=lambda each: each.at):
        if wanted(record):
            found[record.project, record.node].append(record.at)
    return found


def close(of: Mapping[tuple[str, str], Sequence[int]], span: int, count: int = 2) -> Marks:
    """Starts that are the last of `count` in a row within less than `span` ns."""
    return {
        key: [at for before, at in zip(times, times[count - 1 :], strict=False) if at - before < span]
        for key, times in of.items()
    }


def beside(records: Iterable[Record]) -> Marks:
    """Starts while another message of the same project was being handled by the same node."""
    running: dict[tuple[str, str], int] = defaultdict(int)
    found: Marks = defaultdict(list)
    for record in sorted(records, key=lambda each: (each.at, each.began)):
        key = record.project, record.node
        if record.began and running[key] > 0:
            found[key].append(record.at)
        running[key] += 1 if record.began else -1
    return found


# ---- who is judged


class Owners:
    """Who owned something of a project, by what etcd told. `died`: when nodes were killed, which own nothing more."""

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


def until_last(edit: Edit, marks: Marks, owners: set[str], start: int, *, strict: bool = True) -> list[Seen]:
    """Of a change that forbids these marks, from `start` on. If it is `strict`, whoever makes any more than a second
    later is judged, too, whatever it owns: shares are others where a node has just begun to own something.
    """
    found = []
    for (project, node), times in marks.items():
        if project != edit.name:
            continue
        last = bisect_left(times, edit.until)
        late = times[last - 1] - start if last and times[last - 1] >= start else 0
        if node in owners or (strict and late > AROUND_NS):
            found.append(Seen(edit, node, late))
    return found


def until_first(edit: Edit, marks: Marks, owners: set[str], start: int) -> list[Seen]:
    """Of a change that allows these marks, from `start` on."""
    found = []
    for node in sorted(owners):
        times = marks.get((edit.name, node), [])
        first = bisect_right(times, start)
        missed = first == len(times) or times[first] >= edit.until
        found.append(Seen(edit, node, (edit.until if missed else times[first]) - start, missed))
    return found


# ---- what holds after it


def count(marks: Marks, project: str, start: int, end: int) -> int:
    """Over all nodes, in [start, end)."""
    each = (times for (name, _), times in marks.items() if name == project)
    return sum(max(0, bisect_left(times, end) - bisect_left(times, start)) for times in each)


def silence(times: Iterable[int]) -> int:
    """The longest time, in ns, between two of these, which are sorted; 0 if there are fewer."""
    return max((after - before for before, after in pairwise(times)), default=0)


def worst_second(times: Sequence[int]) -> int:
    """The most in any half-open window of a second; `times` are sorted."""
    return max((bisect_left(times, at + SECOND) - place for place, at in enumerate(times)), default=0)


def merged(marks: Marks, project: str) -> list[int]:
    """Over all nodes, in the order of time."""
    return sorted(at for (name, _), times in marks.items() if name == project for at in times)
