"""What a node has taken over for good, so that what comes in there has just been put. Pure.

The backlog of a partition comes in at its new owner as new messages do, and so does what fell due while it had none.
Who measures how fast messages arrive can't tell them apart, and begins when all of that is in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.node.partitions.partition import Partition

    Streams = frozenset[tuple[int, ...]]

_LONGEST = 10_000_000_000  # ns; messages at a stream's end may have been deleted, and then its end never comes in


def stable_streams(partitions: Mapping[int, Partition], now: int, quiet: int) -> Streams | None:
    """Which streams under which epochs a node feeds; None until what each of them held at its take-over is in, and
    `quiet` ns more have passed, in which what is overdue comes in. As long as this is the same, nothing has been taken
    over, given away or replaced. `now` is monotonic ns.
    """
    if not all(_is_in(each, now, quiet) for each in partitions.values()):
        return None
    return frozenset(
        (number, each.lane.epoch, each.lane.generation, each.later.generation) for number, each in partitions.items()
    )


def _is_in(partition: Partition, now: int, quiet: int) -> bool:
    lane, since = partition.lane, now - partition.opened_at
    if not partition.opened or since < quiet or lane.catching_up:
        return False
    return lane.fed_to >= lane.high or since >= _LONGEST
