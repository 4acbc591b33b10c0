"""The subjects of a project's messages. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from evenlane.engine.base.names import LaneId

HOUR = 3_600_000_000_000


class Subject(NamedTuple):
    """One queue's messages in one stream; in a delay stream those of one `hour` since 1970."""

    lane: LaneId
    name: str
    group: int
    priority: str
    hour: int
    held: int  # messages, settled ones included
    last: int  # the stream's last sequence at the time of the count

    @property
    def project(self) -> str:
        return self.name.split(".")[3]


def parse(lane: LaneId, counts: Mapping[str, int], last: int, priorities: Collection[str]) -> Iterator[Subject]:
    """The subjects of queues with these priorities. Unroutable subjects aren't part of the backlog: their messages will
    soon be dead-lettered.
    """
    for name, count in counts.items():
        words = name.split(".")
        if len(words) != (6 if lane.kind == "lanes" else 7):
            continue
        group = names.number(words[4])
        hour = 0 if lane.kind == "lanes" else names.number(words[6])
        if group is not None and hour is not None and words[5] in priorities:
            yield Subject(lane, name, group, words[5], hour, count, last)
