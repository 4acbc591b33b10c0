"""Takes a lane over: reads its log, and fences the previous owner with a checkpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from evenlane.engine.base.clock import now_ns
from evenlane.engine.control.subscriptions.lane_start import find_start
from evenlane.engine.core.lane.crash_horizon import has_ended_cleanly, horizon_of
from evenlane.engine.core.lane.handoff_state import StreamIdentity
from evenlane.engine.core.lane.log_state import LogState, is_same_lease
from evenlane.engine.core.lane.settle_log import HEADERS
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import LogMoved
from evenlane.engine.core.queue.subscription_filter import ALL_MESSAGES
from evenlane.engine.core.records import settle_record
from evenlane.engine.errors import UnknownEpoch
from evenlane.engine.node.partitions.crash_suspects import (
    choose_accused,
    find_blocked,
    find_dead,
    read_in_flight,
    suspect,
)
from evenlane.engine.node.settle.settle_log_reader import read_settle_log, report_unreadable
from evenlane.engine.node.settle.stream_verifier import time_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.in_flight_set import InFlightListing
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.ports import BusyRecord, LaneState, Store
    from evenlane.engine.core.queue.subscription_filter import SubscriptionFilter
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
    version: Callable[[], int] = lambda: settle_record.VERSION,
    chosen: Callable[[], SubscriptionFilter] = lambda: ALL_MESSAGES,
) -> tuple[LaneState, dict[int, HeldLane]]:
    """Take a lane over: read its log, and append a checkpoint, which fences the last owner. Returns the stream's state,
    and what previous owners say of this very stream, by epoch. Raises Fenced, Lost.

    If the last owner didn't end cleanly, the record carries the crash horizon. It counts an attempt for each message
    that an in-flight record names (`busy` returns the records), that an earlier owner held whose key is gone, or that
    blocked an owner until its process ended itself, as a key in `held` says. Messages that previous owners still hold,
    as `held` says, are withheld in the lane.

    `known` are the owners that have ended, as etcd or this node knows; None: all. Raises UnknownEpoch if the log's
    owner is none of them, or its epoch isn't below the lane's. `repeated`: the log may already have a record of the
    lane's own epoch. `version()` returns the version that records get now, `chosen()` which messages are for the
    subscription: if it was reset since the log's last record, the lane begins where the reset says.
    """
    while True:
        incarnation = store.incarnation
        log, position, state = await _read(store, lane)
        released = _list_released(held, lane.id, log)
        high_at = await time_of(store, lane.id, log.high, state)
        parts = await _list_held(store, lane.id, held, state)
        repeated = repeated or lane.log.may_have_begun
        clean = has_ended_cleanly(log, state, lane.epoch if repeated else -1, released)
        _check_owner(lane, log, known, clean=clean, repeated=repeated)
        dead = find_dead(log, released, clean=clean)
        _check_holders(lane, dead.keys() - {log.epoch}, known)
        found = await _list_in_flight(store, lane.id, dead, busy)
        blockers = find_blocked(held, lane.id.kind, state.created)
        reset = chosen().reset
        start = await _find_start(store, lane, log, state, chosen())
        # From here to the append nothing is awaited: a cancellation in between would leave half of it unlogged.
        horizon = horizon_of(log, state, clean=clean)
        lane.log.reset = max(reset, log.reset)
        lane.is_shared = version() == settle_record.SHARED_VERSION
        if start is not None:
            lane.begin_after(start - 1, state, horizon)
            _log.info("the subscription was reset: the lane begins again", **lane_fields(lane), first=start)
        if start is not None or lane.recover(log, state, high_at, horizon):
            lane.marks.release_all()
            suspect(lane, [*found, *choose_accused(blockers, dead, found)])
            lane.blocked |= {each: part.seconds for part in blockers.values() for each in part.sequences}
        else:
            _log.warning("the settle log speaks of another stream: all of it is fed again", **lane_fields(lane))
        for epoch, part in parts.items():
            lane.hold(epoch, part.running, [] if is_void(part, lane) else part.done)
        lane.verified = incarnation
        if await _fence(store, lane, position, version):
            return state, parts


async def _list_in_flight(
    store: Store,
    lane: LaneId,
    dead: Mapping[int, Collection[int] | None],
    busy: Callable[[], Awaitable[list[BusyRecord]]],
) -> list[InFlightListing]:
    """The messages that dead owners had in flight; `dead` has these by epoch."""
    recorded = await busy() if dead else []
    return [each for epoch, among in dead.items() for each in await read_in_flight(store, lane, recorded, epoch, among)]


async def _read(store: Store, lane: Lane) -> tuple[LogState, int, LaneState]:
    """The log, its position, and the stream's state. Both are read at once. A state that doesn't match the log may have
    been read before it, so it is read again.
    """
    (log, position), state = await asyncio.gather(read_settle_log(store, lane.id), store.state(lane.id))
    report_unreadable(lane, log)
    if log.created and (log.created != state.created or log.high > state.last):
        state = await store.state(lane.id)
    return log, position, state


async def _find_start(
    store: Store, lane: Lane, log: LogState, state: LaneState, chosen: SubscriptionFilter
) -> int | None:
    """The first message that the lane gets, if the subscription was reset since the log's last record; otherwise None.
    The stream of its own retries stays as it is: which of them it still gets is decided when they arrive. Raises Lost.
    """
    if log.reset >= chosen.reset or lane.id.kind == "again":
        return None
    return 1 if lane.later else await find_start(store, lane.id, state, chosen.since)


def is_void(part: HeldLane, lane: Lane) -> bool:
    """Whether the results of handlers that a previous owner still runs count for nothing: they were started before the
    subscription was reset.
    """
    return lane.id.kind != "again" and (part.reset or 0) < lane.log.reset


def _list_released(held: Iterable[HeldRecord], lane: LaneId, log: LogState) -> set[int]:
    """The epochs whose owners released the partition and left a key that names the messages still running.

    A key with loans alone is written by the supervisor of a process that died (engine/cli/run/lease_revoker.py): an
    owner's key names each stream whose log doesn't record a clean end. After an etcd rollback, a key with the log's
    epoch may be another owner's.
    """
    return {
        record.epoch
        for record in held
        if lane.kind in record.lanes and (record.epoch != log.epoch or is_same_lease(record.lease, log.lease))
    }


def _check_owner(
    lane: Lane, log: LogState, known: Collection[PastOwner] | None, *, clean: bool, repeated: bool
) -> None:
    """Check that the log's last owner is accounted for. Raises UnknownEpoch."""
    if log.epoch == lane.epoch and log.lease == lane.lease and repeated:
        return
    is_known = known is None or any(each.epoch == log.epoch and is_same_lease(each.lease, log.lease) for each in known)
    is_unowned = log.number == 0  # owners number their records from 1 on
    if log.epoch >= lane.epoch or not (is_unowned or is_known or clean):
        raise UnknownEpoch(
            f"{lane.id.kind} {lane.id.partition} had an owner of epoch {log.epoch}, which etcd no longer knows"
            f" (the new owner's is {lane.epoch})",
            log.epoch,
            log.lease,
        )


def _check_holders(lane: Lane, epochs: Iterable[int], known: Collection[PastOwner] | None) -> None:
    """Check that earlier owners which held messages, and whose keys are gone, are known to have ended: an etcd that was
    rolled back may have lost the key, too. Raises UnknownEpoch.
    """
    for epoch in sorted(epochs):
        if known is not None and not any(each.epoch == epoch for each in known):
            raise UnknownEpoch(
                f"messages of {lane.id.kind} {lane.id.partition} are held by an owner of epoch {epoch},"
                " which etcd no longer knows",
                epoch,
                0,
            )


async def _fence(store: Store, lane: Lane, position: int, version: Callable[[], int]) -> bool:
    """Append the first record of this epoch. False if the log that was read is out of date, or another owner is still
    writing.
    """
    append = lane.next_append(now_ns(), fence=True)
    if append is not None and len(settle_record.encode(append.record, version())) > store.max_payload - HEADERS:
        lane.log.withdraw(append)
        lane.log.defer_checkpoint()
        append = lane.next_append(now_ns(), fence=True)  # an empty record of the new epoch is a fence as well
    assert append is not None, "a lane that has just recovered can always be cut"
    try:
        raw = settle_record.encode(append.record, version())
        lane.log.position = await store.append_log(lane.id, raw, position, checkpoint=append.record.checkpoint)
    except LogMoved:
        return False
    lane.log.on_append(append, now_ns())
    return True


async def _list_held(store: Store, lane: LaneId, held: Iterable[HeldRecord], state: LaneState) -> dict[int, HeldLane]:
    """The messages that previous owners hold, by epoch, from the records about this very stream."""
    found: dict[int, HeldLane] = {}
    for record in held:
        part = record.lanes.get(lane.kind)
        if part is not None:
            high_at = await time_of(store, lane, part.high, state)
            if StreamIdentity(part.created, part.high, part.high_at, 0).is_same(state, high_at):
                found[record.epoch] = _possible(part, state.last)
    return found


def _possible(part: HeldLane, last: int) -> HeldLane:
    """The record without sequences that no message of the stream can have: any process may have written it."""

    def those(sequences: Iterable[int]) -> list[int]:
        return [each for each in sequences if 0 < each <= last]

    failed = [(sequence, mark) for sequence, mark in part.failed if 0 < sequence <= last]
    return replace(part, running=those(part.running), done=those(part.done), failed=failed)
