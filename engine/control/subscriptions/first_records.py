"""Writes the settle records with which a subscription begins, and those that keep owners of older releases out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from evenlane.engine.base.names import LANE_KINDS, SHARED_KINDS, LaneId
from evenlane.engine.control.subscriptions.lane_start import find_start
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.ports import LogMoved
from evenlane.engine.core.records import settle_record
from evenlane.engine.core.records.settle_record import SHARED_VERSION, UNOWNED_EPOCH, SettleRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.ports import LaneState, Store

_AT_ONCE = 16  # requests
NOTHING: Mapping[int, int] = {}


async def mark_logs(store: Store, partitions: Iterable[int]) -> frozenset[int]:
    """Give the settle logs of partitions that nobody owns a last record of `SHARED_VERSION`, so that an owner of an
    older release gives up. Returns the partitions for which that failed because somebody owns them now.

    Raises Lost, Refused, UnknownVersion.
    """
    moved: set[int] = set()

    async def mark(lane: LaneId) -> None:
        records, position = await store.read_log(lane)
        record = make_mark([each.body for each in records], await store.state(lane))
        if record is None:
            return
        try:
            await store.append_log(lane, settle_record.encode(record), position)
        except LogMoved:
            moved.add(lane.partition)

    await each_lane(partitions, SHARED_KINDS, mark)
    return frozenset(moved)


async def find_unmarked(store: Store, cluster: str, partitions: Iterable[int]) -> frozenset[int]:
    """Return the partitions that have a settle log whose last record isn't of `SHARED_VERSION`. Raises Lost."""
    found: set[int] = set()

    async def look(lane: LaneId) -> None:
        raw = await store.read_last_record(lane, cluster)
        if raw is None or _version_of(raw) != SHARED_VERSION:
            found.add(lane.partition)

    await each_lane(partitions, SHARED_KINDS, look)
    return frozenset(found)


async def begin_logs(
    shared: Store, own: Store, partitions: Iterable[int], start: int | None = None, *, lost: bool = False
) -> None:
    """Give each settle log of a subscription (`own`) its first record, unless it has one. `start` as in
    `Subscription`. `lost`: the subscription isn't new, and its settle logs were lost. Raises Lost, Refused.
    """

    async def begin(lane: LaneId) -> None:
        state = await (own if lane.kind == "again" else shared).state(lane)
        watermark = await _find_watermark(shared, lane, state, 0 if lost else start)
        record = make_first_record(state, watermark, lost=lost)
        with contextlib.suppress(LogMoved):  # another creator has written it
            await own.append_log(lane, settle_record.encode(record), 0)

    await each_lane(partitions, LANE_KINDS, begin)


def make_mark(log: Sequence[bytes], state: LaneState) -> SettleRecord | None:
    """Return the record that gives a log the version `SHARED_VERSION`, and changes nothing else for a takeover; None if
    the log has it. `state` is that of the lane's stream. Raises UnknownVersion.
    """
    if log and _version_of(log[-1]) == SHARED_VERSION:
        return None
    folded = fold(log)
    if not folded.created:  # nobody has ever owned the lane, unless its log was lost with what was removed
        return SettleRecord(
            SHARED_VERSION, UNOWNED_EPOCH, 0, state.created, state.last, state.at, 0, b"", clean=state.first <= 1
        )  # fmt: skip
    return SettleRecord(
        SHARED_VERSION, folded.epoch, folded.number, folded.created, folded.high, folded.high_at,
        folded.settled.watermark, b"", horizon=folded.horizon, clean=folded.clean, lease=folded.lease,
    )  # fmt: skip


def make_first_record(state: LaneState, watermark: int, *, lost: bool = False) -> SettleRecord:
    """Return the first record of a subscription that gets the messages above the `watermark`. Of a new one, nothing can
    have been in flight yet; the logs of another one were `lost`.
    """
    return SettleRecord(SHARED_VERSION, 0, 0, state.created, state.last, state.at, watermark, b"", clean=not lost)


async def find_removed(
    shared: Store, own: Store, partitions: Iterable[int], reset: int = 0, starts: Mapping[int, int] = NOTHING
) -> frozenset[int]:
    """Return the partitions whose lane lacks messages that the subscription (`own`) hasn't settled: an owner that was
    stopped may have removed them while the subscription was created, or `reset`. `starts` has the first message that it
    gets, by partition, for lanes whose log doesn't follow the reset yet. Raises Lost, Refused, UnknownVersion.
    """
    found: set[int] = set()

    async def look(lane: LaneId) -> None:
        state = await shared.state(lane)  # before the log: what is settled by now may be removed
        log = fold(each.body for each in (await own.read_log(lane))[0])
        first = log.settled.watermark + 1 if log.reset >= reset else starts[lane.partition]
        if log.created == state.created and state.first > first:
            found.add(lane.partition)

    await each_lane(partitions, ("lanes",), look)
    return frozenset(found)


async def _find_watermark(shared: Store, lane: LaneId, state: LaneState, start: int | None) -> int:
    """The sequence up to which a subscription that begins at `start` gets nothing. A delayed message reaches each
    subscription that exists when it is due, so a delay stream has no watermark. Raises Lost.
    """
    if lane.kind != "lanes":
        return 0
    if start is None:
        return state.last
    return await find_start(shared, lane, state, start) - 1


def _version_of(raw: bytes) -> int:
    """The version of a record; 0 if it can't be read."""
    try:
        return settle_record.decode(raw).version
    except (ValueError, settle_record.UnknownVersion):
        return 0


async def each_lane(
    partitions: Iterable[int], kinds: Sequence[Kind], work: Callable[[LaneId], Awaitable[None]]
) -> None:
    """Do the work for the streams of these kinds of each partition, some at once. Raises the first error when all that
    had begun have ended.
    """
    lanes = [LaneId(kind, partition) for partition in sorted(partitions) for kind in kinds]
    for start in range(0, len(lanes), _AT_ONCE):
        ends = await asyncio.gather(*map(work, lanes[start : start + _AT_ONCE]), return_exceptions=True)
        for error in ends:
            if error is not None:
                raise error
