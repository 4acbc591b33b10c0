"""Finds the streams that are fed steadily, so that the messages that arrive have just been put. Pure.

At a new owner, the backlog of a partition arrives like new messages, and so do messages that became due while it had no
owner. A measurement of arrival rates can't distinguish them, so it must not begin before all of these have arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.node.partitions.partition import Partition

    Streams = frozenset[tuple[int, ...]]

_LONGEST = 10_000_000_000  # ns; if messages at a stream's end were deleted, its end never arrives


def stable_streams(partitions: Mapping[int, Partition], now: int, quiet: int) -> Streams | None:
    """The streams that a node feeds, with their epochs. None until all messages that they held at their takeover have
    arrived, and `quiet` ns more have passed for overdue ones.

    While the result stays the same, no partition was taken over, released or replaced. `now` is monotonic ns.
    """
    if not all(_is_in(each, now, quiet) for each in partitions.values()):
        return None
    return frozenset(
        (number, each.lane.epoch, *(lane.generation for lane in each.lanes)) for number, each in partitions.items()
    )


def _is_in(partition: Partition, now: int, quiet: int) -> bool:
    lane, since = partition.lane, now - partition.opened_at
    if not partition.opened or since < quiet or lane.is_catching_up:
        return False
    return lane.fed_to >= lane.high or since >= _LONGEST
