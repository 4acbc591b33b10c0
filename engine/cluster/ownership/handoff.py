"""Handoff records: handlers that a partition's previous owner started, and that its next owner must not start again.

The previous owner lists them under a key (`held/<partition>/<epoch>`), in the same transaction that releases the
partition, and updates the key as they end. Its last update is under no lease, so that the previous owner may leave. The
next owner settles the messages that the record reports, then deletes the key. If the previous owner dies first, the key
expires with its lease, and the next owner handles again all messages that had not ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import UNSET

from evenlane.engine.base import names
from evenlane.ring.membership.records import HeldLane, HeldRecord

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.lane.handoff_state import HandoffState

NOTHING_LENT: Mapping[str, float] = {}

OnEnd: TypeAlias = "Callable[[asyncio.Task[None]], None]"  # called when a task ends, so that a failure is noticed


class HandoffId(NamedTuple):
    """Identifies one handoff key."""

    partition: int
    epoch: int


def handoff_key(cluster: str, handoff: HandoffId) -> str:
    return names.key(cluster, "held", handoff.partition, handoff.epoch)


def parse_handoff(name: str) -> HandoffId | None:
    """Parse the part of a key after `held/`. Returns None if it is no handoff id."""
    partition, epoch = (names.number(part) for part in name.partition("/")[::2])
    return HandoffId(partition, epoch) if partition is not None and epoch is not None else None


def handoff_record(
    node: str,
    epoch: int,
    lanes: Mapping[Kind, HandoffState],
    lent: Mapping[str, float] = NOTHING_LENT,
    lease: int = 0,
) -> HeldRecord:
    """Build the value of a handoff key. `lent`: see `HeldRecord`."""
    of_lanes: dict[str, HeldLane] = {kind: _of_lane(lane) for kind, lane in lanes.items()}
    return HeldRecord(id=node, epoch=epoch, lease=lease, lanes=of_lanes, lent=dict(lent))


def _of_lane(lane: HandoffState) -> HeldLane:
    return HeldLane(
        created=lane.seen.created,
        high=lane.seen.high,
        high_at=lane.seen.high_at,
        running=sorted(lane.running),
        done=sorted(lane.done),
        failed=sorted(lane.failed),
        reset=lane.reset or UNSET,
    )


def find_released(before: HeldRecord, after: HeldRecord) -> HeldRecord:
    """Return the messages that run in the first record, and in the second neither run nor have ended.

    Their handlers weren't started after all, or failed and left the message where it is.
    """
    lanes: dict[str, HeldLane] = {}
    for kind, lane in before.lanes.items():
        now = after.lanes.get(kind, lane)
        free = {*lane.running} - {*now.running, *now.done}
        failed = [each for each in now.failed if each[0] in free]
        lanes[kind] = HeldLane(created=lane.created, running=sorted(free), failed=failed, reset=lane.reset)
    return HeldRecord(id=before.id, epoch=before.epoch, lease=before.lease, lanes=lanes)
