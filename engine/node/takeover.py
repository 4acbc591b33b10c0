"""Taking a lane over: read its log, and fence the old owner with an own checkpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from engine import settlelog
from engine.clock import now_ns
from engine.errors import Fenced
from engine.handover import Seen
from engine.horizon import ended_cleanly, horizon_of
from engine.lane_log import HEADERS
from engine.logged import of_lane
from engine.node.deaths import died, in_flight, suspect
from engine.node.identity import time_of
from engine.ports import LogMoved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from engine.lane import Lane
    from engine.names import LaneId
    from engine.ports import BusyRecord, LaneState, Store
    from ring.records import HeldLane, HeldRecord

_log = structlog.get_logger(__name__)


async def recover(
    store: Store, lane: Lane, busy: Callable[[], Awaitable[list[BusyRecord]]], held: Collection[HeldRecord] = ()
) -> tuple[LaneState, list[HeldLane]]:
    """Read the lane's log and append an own checkpoint, which fences the last owner. If that one's end wasn't clean,
    the append says up to where messages may have been in flight then, and counts an attempt of each that an in-flight
    record names (`busy` gives the records); and of what an earlier owner held, whose key is gone. What is `held` still,
    by former owners who speak of this very stream, is noted there; what they say is returned. Raises Fenced, Lost.
    """
    # A key that tells of loans alone is the supervisor's, of a process that died (engine/cli/revoking.py): one that was
    # left by an owner names each stream whose log can't say that its end was clean.
    released = {record.epoch for record in held if lane.id.kind in record.lanes}
    while True:
        incarnation = store.incarnation
        log, position, state = await _read(store, lane)
        high_at = await time_of(store, lane.id, log.high, state)
        parts = await _speaking(store, lane.id, held, state)
        clean = ended_cleanly(log, state, lane.epoch, released)
        dead = died(log, released, clean=clean)
        said = await busy() if dead else []
        found = [each for epoch, among in dead.items() for each in await in_flight(store, lane.id, said, epoch, among)]
        # From here to the append nothing is awaited: were this one stopped just then, it would say half of it.
        if lane.recover(log, state, high_at, horizon_of(log, state, clean=clean)):
            lane.marks.let_go_all()
            suspect(lane, found)
        else:
            _log.warning("the settle log speaks of another stream: all of it is fed again", **of_lane(lane))
        for epoch, part in parts.items():
            lane.hold(epoch, part.running, part.done)
        lane.verified = incarnation
        if await _fenced(store, lane, position):
            return state, [*parts.values()]


async def _read(store: Store, lane: Lane) -> tuple[settlelog.LogState, int, LaneState]:
    """The log, where it stands, and the stream. Both are asked for at once; a stream that isn't the log's, or is behind
    it, may have been read before it, so it is asked for again.
    """
    (records, position), state = await asyncio.gather(store.read_log(lane.id), store.state(lane.id))
    log = _folded(lane, records)
    if log.created and (log.created != state.created or log.high > state.last):
        state = await store.state(lane.id)
    return log, position, state


def _folded(lane: Lane, records: list[bytes]) -> settlelog.LogState:
    log = settlelog.fold(records)
    if log.unreadable:
        _log.error("the settle log holds records that are none: passed over", **of_lane(lane), count=log.unreadable)
    if log.epoch > lane.epoch:
        raise Fenced(f"{lane.id.kind} {lane.id.partition} has an owner of epoch {log.epoch}, not {lane.epoch}")
    return log


async def _fenced(store: Store, lane: Lane, position: int) -> bool:
    """Append the first record of this epoch; False if what was read was stale, or somebody is still writing."""
    append = lane.cut(now_ns(), fence=True)
    if append is not None and len(settlelog.encode(append.record)) > store.max_payload - HEADERS:
        lane.log.withdraw(append)
        lane.log.put_off_checkpoint()
        append = lane.cut(now_ns(), fence=True)  # an empty record of the new epoch fences as well
    assert append is not None, "a lane that has just recovered can always be cut"
    try:
        lane.log.position = await store.append_log(
            lane.id, settlelog.encode(append.record), position, checkpoint=append.record.checkpoint
        )
    except LogMoved:
        return False
    lane.log.acknowledged(append)
    return True


async def _speaking(store: Store, lane: LaneId, held: Iterable[HeldRecord], state: LaneState) -> dict[int, HeldLane]:
    """By epoch, what former owners who speak of this very stream hold of a lane."""
    found: dict[int, HeldLane] = {}
    for record in held:
        part = record.lanes.get(lane.kind)
        if part is not None:
            high_at = await time_of(store, lane, part.high, state)
            if Seen(part.created, part.high, part.high_at, 0).same(state, high_at):
                found[record.epoch] = part
    return found
