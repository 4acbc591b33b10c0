"""Handoff records: handlers that a partition's previous owner began, and that its next owner must not begin again.

The previous owner names them in a key (`held/<partition>/<epoch>`) in the very transaction that releases the partition,
and reports there how they end. Its last report is under no lease, so that the previous owner may leave; the next one
settles what the report says and deletes the key. If the previous owner dies first, the key goes with its lease, and the
next one begins again what had not ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from evenlane.engine.base import names
from evenlane.ring.membership.records import HeldLane, HeldRecord

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.lane.handoff_state import HandoffState

NOTHING_LENT: Mapping[str, float] = {}

OnEnd: TypeAlias = "Callable[[asyncio.Task[None]], None]"  # called at the end of a task, in case it is a failure


class HandoffId(NamedTuple):
    """One handoff key."""

    partition: int
    epoch: int


def handoff_key(env: str, handoff: HandoffId) -> str:
    return names.key(env, "held", handoff.partition, handoff.epoch)


def parse_handoff(name: str) -> HandoffId | None:
    """The id in the part of a key after `held/`; None if it has none."""
    partition, epoch = (names.number(part) for part in name.partition("/")[::2])
    return HandoffId(partition, epoch) if partition is not None and epoch is not None else None


def handoff_record(
    node: str,
    epoch: int,
    lanes: Mapping[Kind, HandoffState],
    lent: Mapping[str, float] = NOTHING_LENT,
    lease: int = 0,
) -> HeldRecord:
    """What is written under a handoff key. `lent`: see the record."""
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
    )


def not_ended(before: HeldRecord, after: HeldRecord) -> HeldRecord:
    """What ran by the first record, and by the second neither runs nor has ended: its handler wasn't started after all,
    or has failed and the message stays where it is.
    """
    lanes: dict[str, HeldLane] = {}
    for kind, lane in before.lanes.items():
        now = after.lanes.get(kind, lane)
        free = {*lane.running} - {*now.running, *now.done}
        failed = [each for each in now.failed if each[0] in free]
        lanes[kind] = HeldLane(created=lane.created, running=sorted(free), failed=failed)
    return HeldRecord(id=before.id, epoch=before.epoch, lease=before.lease, lanes=lanes)
