"""Distributes ranges of streams over tasks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.core.export_port import Range

_LEAST = 250  # messages that justify a task of their own


class Task(InputPartition):
    """Input of one task: ranges of streams, one after the other, or files."""

    def __init__(self, ranges: Sequence[Range] = (), files: Sequence[str] = ()) -> None:
        super().__init__(None)
        self.ranges, self.files = tuple(ranges), tuple(files)


def tasks(ranges: Iterable[Range], most: int) -> list[Task]:
    """Return at most `most` tasks with about equally many sequences: large ranges are split, small ones combined. The
    order of ranges is kept.
    """
    left = [each for each in ranges if each.last >= each.first]
    total = sum(map(_length, left))
    share = max(_LEAST, -(-total // most))
    found: list[list[Range]] = []
    room = 0
    for each in left:
        first = each.first
        while first <= each.last:
            if not room:
                found.append([])
                room = share
            last = min(each.last, first + room - 1)
            found[-1].append(each._replace(first=first, last=last))
            room -= last - first + 1
            first = last + 1
    return [Task(some) for some in found]


def file_tasks(files: Sequence[str], most: int) -> list[Task]:
    """Return at most `most` tasks, with equally many files."""
    share = max(1, -(-len(files) // most))
    return [Task(files=files[start : start + share]) for start in range(0, len(files), share)]


def _length(each: Range) -> int:
    return each.last - each.first + 1
