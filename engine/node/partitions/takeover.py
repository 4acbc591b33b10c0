"""Taking a lane over: read its log, and fence the old owner with an own checkpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane import settle_record
from evenlane.engine.core.lane.crash_horizon import ended_cleanly, horizon_of
from evenlane.engine.core.lane.handoff_state import StreamIdentity
from evenlane.engine.core.lane.settle_log import HEADERS
from evenlane.engine.core.lane.settle_record import is_same_lease
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import LogMoved
from evenlane.engine.errors import UnknownEpoch
from evenlane.engine.node.partitions.crash_suspects import accused, blocked, died, read_in_flight, suspect
from evenlane.engine.node.settle.settle_log_reader import read_settle_log, report_unreadable
from evenlane.engine.node.settle.stream_verifier import time_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.ports import BusyRecord, LaneState, Store
    from evenlane.ring.membership.records import HeldLane, HeldRecord, PastOwner

_log = structlog.get_logger(__name__)


async def recover(
    store: Store,
    lane: Lane,
    busy: Callable[[], Awaitable[list[BusyRecord]]],
    held: Collection[HeldRecord] = (),
    known: Collection[PastOwner] | None = None,
    *,
    repeated: bool = True,
) -> tuple[LaneState, list[HeldLane]]:
    """Read the lane's log and append an own checkpoint, which fences the last owner. If that one's end wasn't clean,
    the append says up to where messages may have been in flight then, and counts an attempt of each that an in-flight
    record names (`busy` gives the records), of what an earlier owner held, whose key is gone, and of what blocked an
    owner until its process ended itself, as a key in `held` says. What is `held` still,
    by former owners who speak of this very stream, is noted there; what they say is returned. Raises Fenced, Lost.

    `known` are the owners that serve no more, as etcd or this node knows; None: all are. Raises UnknownEpoch if the
    log's is another one, or its epoch isn't lower than the lane's. `repeated`: the lane's own may be there already.
    """
    while True:
        incarnation = store.incarnation
        log, position, state = await _read(store, lane)
        released = _released(held, lane.id, log)
        high_at = await time_of(store, lane.id, log.high, state)
        parts = await _speaking(store, lane.id, held, state)
        repeated = repeated or lane.log.may_have_begun
        clean = ended_cleanly(log, state, lane.epoch if repeated else -1, released)
        _check_owner(lane, log, known, clean=clean, repeated=repeated)
        dead = died(log, released, clean=clean)
        _check_holders(lane, dead.keys() - {log.epoch}, known)
        said = await busy() if dead else []
        found = [
            each for epoch, among in dead.items() for each in await read_in_flight(store, lane.id, said, epoch, among)
        ]
        blockers = blocked(held, lane.id.kind, state.created)
        # From here to the append nothing is awaited: were this one stopped just then, it would say half of it.
        if lane.recover(log, state, high_at, horizon_of(log, state, clean=clean)):
            lane.marks.let_go_all()
            suspect(lane, [*found, *accused(blockers, dead, found)])
            lane.blocked |= {each: part.seconds for part in blockers.values() for each in part.sequences}
        else:
            _log.warning("the settle log speaks of another stream: all of it is fed again", **lane_fields(lane))
        for epoch, part in parts.items():
            lane.hold(epoch, part.running, part.done)
        lane.verified = incarnation
        if await _fenced(store, lane, position):
            return state, [*parts.values()]


async def _read(store: Store, lane: Lane) -> tuple[settle_record.LogState, int, LaneState]:
    """The log, where it stands, and the stream. Both are asked for at once; a stream that isn't the log's, or is behind
    it, may have been read before it, so it is asked for again.
    """
    (log, position), state = await asyncio.gather(read_settle_log(store, lane.id), store.state(lane.id))
    report_unreadable(lane, log)
    if log.created and (log.created != state.created or log.high > state.last):
        state = await store.state(lane.id)
    return log, position, state


def _released(held: Iterable[HeldRecord], lane: LaneId, log: settle_record.LogState) -> set[int]:
    """The epochs whose owners released the partition and left a key that says what still runs. A key that tells of
    loans alone is the supervisor's, of a process that died (engine/cli/run/lease_revoker.py): one that an owner left
    names each stream whose log can't say that its end was clean. After etcd went back, one of the log's epoch may be
    another's.
    """
    return {
        record.epoch
        for record in held
        if lane.kind in record.lanes and (record.epoch != log.epoch or is_same_lease(record.lease, log.lease))
    }


def _check_owner(
    lane: Lane, log: settle_record.LogState, known: Collection[PastOwner] | None, *, clean: bool, repeated: bool
) -> None:
    """Whether the log's last owner is accounted for. Raises UnknownEpoch."""
    if log.epoch == lane.epoch and log.lease == lane.lease and repeated:
        return
    is_known = known is None or any(each.epoch == log.epoch and is_same_lease(each.lease, log.lease) for each in known)
    if log.epoch >= lane.epoch or not (log.epoch == 0 or is_known or clean):
        raise UnknownEpoch(
            f"{lane.id.kind} {lane.id.partition} had an owner of epoch {log.epoch}, that etcd has forgotten"
            f" (this one's is {lane.epoch})",
            log.epoch,
            log.lease,
        )


def _check_holders(lane: Lane, epochs: Iterable[int], known: Collection[PastOwner] | None) -> None:
    """Check that earlier owners who still held messages, and whose keys are gone, are known to have ended. If etcd has
    forgotten such an owner, it may have lost the key as well. Raises UnknownEpoch.
    """
    for epoch in sorted(epochs):
        if known is not None and not any(each.epoch == epoch for each in known):
            raise UnknownEpoch(
                f"messages of {lane.id.kind} {lane.id.partition} are held by an owner of epoch {epoch},"
                " that etcd has forgotten",
                epoch,
                0,
            )


async def _fenced(store: Store, lane: Lane, position: int) -> bool:
    """Append the first record of this epoch; False if what was read was stale, or somebody is still writing."""
    append = lane.cut(now_ns(), fence=True)
    if append is not None and len(settle_record.encode(append.record)) > store.max_payload - HEADERS:
        lane.log.withdraw(append)
        lane.log.put_off_checkpoint()
        append = lane.cut(now_ns(), fence=True)  # an empty record of the new epoch fences as well
    assert append is not None, "a lane that has just recovered can always be cut"
    try:
        lane.log.position = await store.append_log(
            lane.id, settle_record.encode(append.record), position, checkpoint=append.record.checkpoint
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
            if StreamIdentity(part.created, part.high, part.high_at, 0).same(state, high_at):
                found[record.epoch] = _possible(part, state.last)
    return found


def _possible(part: HeldLane, last: int) -> HeldLane:
    """Without sequences that no message of the stream has: anybody may have written the record."""

    def those(sequences: Iterable[int]) -> list[int]:
        return [each for each in sequences if 0 < each <= last]

    failed = [(sequence, mark) for sequence, mark in part.failed if 0 < sequence <= last]
    return replace(part, running=those(part.running), done=those(part.done), failed=failed)
