"""One partition's take-over: read the log, fence the old owner, feed from the watermark; and what follows when a
stream turns out to be another one.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar, cast

import structlog

from engine import headers as h
from engine import settlelog
from engine.clock import now_ns
from engine.errors import Fenced
from engine.handover import Seen
from engine.inflight import listed
from engine.lane import Lane
from engine.marks import held_under
from engine.names import LaneId
from engine.order import Place
from engine.ports import LogMoved, Lost, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable

    from engine.index import Entry, Limits, Queue
    from engine.inflight import Listed
    from engine.ports import BusyRecord, Feed, LaneState, Store
    from ring.records import HeldLane, HeldRecord

_log = structlog.get_logger(__name__)
T = TypeVar("T")

TAIL_BEYOND = 5_000  # messages of backlog from which a tail feed runs beside the catch-up
_FEW = 256  # messages of a queue that are read by its subject, rather than wait for the catch-up
_AHEAD_AT_MOST = 200  # queues of one partition
_HOUR = 3_600_000_000_000
_NEAR = 300_000_000_000  # ns for which an hour is fed after its end
_APART = 4  # feeds of single hours; further ones, long past, share one
_PAUSE_S = 0.2
_CLOCKS = 1_000_000_000  # ns by which the clocks of two servers may differ
HEADERS = 1024  # bytes that a record's headers may take
_DIGITS = 10  # fewer of them has an hour before the year 100,000


async def verify(store: Store, lane: Lane) -> bool:
    """Confirm with the leader that the stream is the one the lane was fed from; if it isn't, the lane is reset
    and False returned. Raises Lost.
    """
    incarnation = store.incarnation
    if lane.verified == incarnation:
        return True
    seen = lane.seen  # as of now: it may move on while the leader is asked
    state = await store.state(lane.id)
    high_at = await _time_of(store, lane.id, seen.high, state)
    if lane.verified == incarnation:
        return True  # somebody else has found out meanwhile
    same = seen.same(state, high_at)
    if not same:
        _log.warning(
            "the stream was replaced or rolled back: beginning anew from its first message",
            lane=lane.id, had=lane.high, has=state.last,
        )  # fmt: skip
        lane.reset(state)
    lane.verified = incarnation
    return same


async def recover(
    store: Store, lane: Lane, busy: Callable[[], Awaitable[list[BusyRecord]]], held: Collection[HeldRecord] = ()
) -> tuple[LaneState, list[HeldLane]]:
    """Read the lane's log and append an own checkpoint, which fences the last owner. What was in flight there when its
    process died (`busy` gives the in-flight records) is counted as an attempt in that very append, unless its epoch
    ended in peace; and so is what an earlier owner held, of whom nothing is left. What is `held` still, by former
    owners who speak of this very stream, is noted there; what they say is returned. Raises Fenced, Lost.
    """
    while True:
        incarnation = store.incarnation
        records, position = await store.read_log(lane.id)
        log = settlelog.fold(records)
        if log.unreadable:
            _log.error("the settle log holds records that are none: passed over", lane=lane.id, count=log.unreadable)
        if log.epoch > lane.epoch:
            raise Fenced(f"{lane.id.kind} {lane.id.partition} has an owner of epoch {log.epoch}, not {lane.epoch}")
        state = await store.state(lane.id)
        high_at = await _time_of(store, lane.id, log.high, state)
        parts = await _speaking(store, lane.id, held, state)
        died = _died(log, {record.epoch for record in held})
        said = await busy() if died else []
        found = [each for epoch, among in died.items() for each in await _in_flight(store, lane.id, said, epoch, among)]
        # From here to the append nothing is awaited: were this one stopped just then, it would say half of it.
        if lane.recover(log, state, high_at):
            lane.marks.let_go_all()
            _suspect(lane, found)
        else:
            _log.warning("the settle log speaks of another stream: all of it is fed again", lane=lane.id)
        for epoch, part in parts.items():
            lane.hold(epoch, part.running, part.done)
        lane.verified = incarnation
        append = lane.cut(now_ns(), fence=True)
        if append is not None and len(settlelog.encode(append.record)) > store.max_payload - HEADERS:
            lane.withdraw(append)
            lane.put_off_checkpoint()
            append = lane.cut(now_ns(), fence=True)  # an empty record of the new epoch fences as well
        assert append is not None, "a lane that has just recovered can always be cut"
        try:
            lane.log_position = await store.append_log(
                lane.id, settlelog.encode(append.record), position, checkpoint=append.record.checkpoint
            )
        except LogMoved:
            continue  # what was read was stale, or somebody is still writing: look again
        lane.acknowledged(append)
        return state, [*parts.values()]


async def _speaking(store: Store, lane: LaneId, held: Iterable[HeldRecord], state: LaneState) -> dict[int, HeldLane]:
    """By epoch, what former owners who speak of this very stream hold of a lane."""
    found: dict[int, HeldLane] = {}
    for record in held:
        part = record.lanes.get(lane.kind)
        if part is not None:
            high_at = await _time_of(store, lane, part.high, state)
            if Seen(part.created, part.high, part.high_at, 0).same(state, high_at):
                found[record.epoch] = part
    return found


def _died(log: settlelog.LogState, peaceful: Collection[int]) -> dict[int, set[int] | None]:
    """The epochs whose owners have died as far as the log knows, oldest first, each with the sequences in question
    (None: all). Who held something and has no record any more is one, as the log hears of the end of what is held
    before the record is deleted in peace.
    """
    held: dict[int, set[int]] = {}
    for sequence, mark in log.marks.items():
        if (epoch := held_under(mark)) and epoch not in peaceful:
            held.setdefault(epoch, set()).add(sequence)
    last = {log.epoch: None} if log.epoch not in peaceful else {}
    return {**dict(sorted(held.items())), **last}


async def _in_flight(
    store: Store, lane: LaneId, records: list[BusyRecord], epoch: int, among: Collection[int] | None
) -> list[Listed]:
    """What was in flight under an epoch (but only `among` these, if given), and is there. What arrived later than the
    record that names its sequence is another message: the stream has been rolled back since.
    """
    found = [each for each in listed(records, lane, epoch) if among is None or each.sequence in among]
    while found:
        last = found[-1]
        stored = (await store.get(lane, [last.sequence]))[0]
        if stored is not None and stored.at <= last.at + _CLOCKS:
            break  # and so are those before it, which arrived earlier
        found.pop()
    return found


def _suspect(lane: Lane, found: Iterable[Listed]) -> None:
    """Mark what was in flight when its process died."""
    found = [each for each in found if each.sequence not in lane.settled and each.sequence <= lane.high]
    for each in found:
        lane.mark_died(each.sequence, now_ns(), counts=each.counts, confirmed=each.confirmed)
    if found:
        _log.warning(
            "a process died, or lost its lease, with messages in flight: they are handled one at a time",
            lane=lane.id, count=len(found), confirmed=sum(each.confirmed for each in found),
        )  # fmt: skip


async def _time_of(store: Store, lane: LaneId, high: int, state: LaneState) -> int | None:
    """The arrival time of the message at `high`; 0 if it is gone, None if there can't be one."""
    if high < state.first or high > state.last or high == 0:
        return None
    if high == state.last and state.at:
        return state.at
    found = (await store.get(lane, [high]))[0]
    return found.at if found is not None else 0


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What they return. If some fail, that is raised when all have ended."""
    ends = await asyncio.gather(*work, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return cast("list[T]", ends)


def _nothing() -> None:
    """Where no backlog waits."""


def due_hour(text: str) -> int | None:
    """The hour that the last word of a later subject names; None if it names none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None


class Partition:
    """The lane and the later stream of one partition under one epoch, with their feeds."""

    def __init__(
        self,
        store: Store,
        number: int,
        epoch: int,
        limits: Limits,
        open_queue: Callable[[Lane, bytes, Entry | None], Queue | None],
        at_hand: Callable[[Queue], None],
        on_delayed: Callable[[], None],
        busy: Callable[[], Awaitable[list[BusyRecord]]],
        free: Callable[[Queue, Place], None],
    ) -> None:
        self._store, self.number = store, number
        self._busy, self._free = busy, free
        self.lane = Lane(LaneId("lanes", number), epoch, limits, open_queue, at_hand)
        self.later = Lane(LaneId("later", number), epoch, limits, open_queue, at_hand)
        self._at_hand, self._on_delayed = at_hand, on_delayed
        self._feeds: dict[Lane, list[Feed]] = {self.lane: [], self.later: []}
        self._hours: dict[Feed, set[str]] = {}
        self._catch_up: Callable[[], None] = _nothing
        self._keys: dict[Place, Queue] = {}  # of ordered topics: whose keys are out at a former owner's
        # Of what former owners held:
        self._ended: dict[Lane, set[int]] = {self.lane: set(), self.later: set()}
        self._freed: dict[Lane, set[int]] = {self.lane: set(), self.later: set()}
        self.opened = self._closed = False
        self._turning = asyncio.Lock()  # hours are turned by the clock and after a replacement
        self._reopening: dict[Lane, asyncio.Task[None]] = {}

    @property
    def both(self) -> tuple[Lane, Lane]:
        return self.lane, self.later

    async def open(self, held: Iterable[HeldRecord] = ()) -> None:
        """Take over, but for what former owners still hold: when this returns, the partition's messages are coming
        in; a large backlog after `catch_up`. Raises Fenced, Lost.
        """
        held = list(held)
        recovered = await _all(recover(self._store, lane, self._busy, held) for lane in self.both)
        for lane, (_, parts) in zip(self.both, recovered, strict=True):
            await self._hold(lane, parts)  # of both, as a key may be out in the one and wait in the other
        await _all([self._feed_lane(recovered[0][0]), self.feed_later()])
        self.opened = True
        for lane in self.both:  # a stream that changed while its feed was made has told nobody
            lane.verified = -1
            await self.verify(lane)

    async def _hold(self, lane: Lane, parts: Iterable[HeldLane]) -> None:
        """Act on what former owners hold: the lane keeps it back already."""
        for part in parts:
            await self._keep_keys(lane, part.running)
            self._settle(lane, part.done)
            self._note_failed(lane, part.failed)

    @staticmethod
    def _note_failed(lane: Lane, failed: Iterable[tuple[int, int]]) -> None:
        for sequence, mark in failed:
            lane.mark_as_told(sequence, mark, now_ns())

    async def _keep_keys(self, lane: Lane, sequences: list[int]) -> None:
        """In ordered topics, the keys of what a former owner holds are out there: nothing else of them goes here."""
        for stored in await self._store.get(lane.id, sequences) if sequences else ():
            if stored is None or (key := h.value(stored.headers, h.KEY)) is None:
                continue
            queue = lane.queue_of(stored.subject.encode())
            if queue is not None and queue.order is not None:
                place = Place(lane, stored.sequence)
                queue.order.admit(key, place)
                self._keys[place] = queue

    def _key_free(self, lane: Lane, sequence: int) -> None:
        place = Place(lane, sequence)
        if (queue := self._keys.pop(place, None)) is not None:
            self._free(queue, place)

    def _settle(self, lane: Lane, sequences: Iterable[int]) -> None:
        known = lane.held.keys()  # else the stream has been replaced since, or it is known already
        for sequence in [each for each in sequences if each in known and each not in self._ended[lane]]:
            self._ended[lane].add(sequence)
            lane.settle(sequence, lane.generation, now_ns())
            self._key_free(lane, sequence)

    def held_changed(self, record: HeldRecord) -> None:
        """Some of what a former owner holds has ended there."""
        for lane in self.both:
            if (part := record.lanes.get(lane.id.kind)) is not None:
                self._settle(lane, part.done)

    def held_let_go(self, record: HeldRecord) -> None:
        """Its holder lives, and doesn't handle this after all."""
        for lane in self.both:
            if (part := record.lanes.get(lane.id.kind)) is None:
                continue
            self._note_failed(lane, [each for each in part.failed if each[0] in lane.held])
            self._let_go(lane, part.running)

    def _let_go(self, lane: Lane, sequences: list[int]) -> None:
        self._freed[lane].update(sequences)
        for queue in lane.let_go(sequences, now_ns()):
            self._at_hand(queue)

    async def held_gone(self, record: HeldRecord) -> None:
        """A former owner has gone, and this was its last word: what it didn't end is handed out here, and with care, as
        it may have died of it. Raises Lost.
        """
        if not record.running:
            return
        records = await self._busy()
        for lane in self.both:
            if (part := record.lanes.get(lane.id.kind)) is None:
                continue
            known = lane.held.keys() & {*part.running}  # none any more if the stream has been replaced since
            _suspect(lane, [each for each in listed(records, lane.id, record.epoch) if each.sequence in known])
            self._let_go(lane, part.running)

    def durable(self, record: HeldRecord) -> bool:
        """Whether all that a former owner has ended is settled for good."""
        return not any(
            lane.awaits_log([*part.done, *(failed for failed, _ in part.failed), *self._freed[lane]])
            for lane in self.both
            if (part := record.lanes.get(lane.id.kind)) is not None
        )

    async def close(self) -> None:
        """Stop taking in."""
        self._closed = True
        for task in self._reopening.values():
            task.cancel()
        await asyncio.gather(*self._reopening.values(), return_exceptions=True)
        await asyncio.gather(*(feed.close() for feeds in self._feeds.values() for feed in feeds))

    async def verify(self, lane: Lane) -> None:
        """As `verify` above; a lane that was reset is fed from the start."""
        if not await verify(self._store, lane):
            for feed in self._feeds[lane]:
                feed.disturb("the stream was replaced")
            if lane not in self._reopening and not self._closed:
                self._reopening[lane] = asyncio.create_task(self._reopen(lane), name=f"reopen {lane.id}")

    async def _reopen(self, lane: Lane) -> None:
        try:
            async with self._turning:
                feeds, self._feeds[lane] = self._feeds[lane], []
                if lane is self.later:
                    self._hours.clear()
            await asyncio.gather(*(feed.close() for feed in feeds))
            while True:
                try:
                    if lane is self.lane:
                        await self._feed_lane(await self._store.state(lane.id))
                        self.catch_up()
                    else:
                        await self.feed_later()
                    break
                except (Lost, Refused):
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._reopening.pop(lane, None)
        with contextlib.suppress(Lost, Refused):  # (else before the next settle)
            await self.verify(lane)

    # ---- the lane: one feed, or two while a backlog comes in

    async def _feed_lane(self, state: LaneState) -> None:
        lane = self.lane
        if state.last - lane.position <= TAIL_BEYOND:
            self._feeds[lane] = [self._feed(lane.position + 1)]
            return
        start, generation, counts = lane.position, lane.generation, await self._store.counts(lane.id)
        if lane.generation != generation:
            raise Lost("the stream was replaced meanwhile")
        lane.expect_backlog(counts, state.last)
        few = lane.take_ahead(_FEW, _AHEAD_AT_MOST)
        tail = self._store.feed(lane.id, state.last + 1, lane.take_in_tail, self._resume_tail)

        def caught_up() -> None:
            behind = lane.caught_up(state.last)
            _log.info("caught up", partition=self.number, messages=state.last - start)
            tail.sink = lane.take_in
            for queue in behind:
                self._at_hand(queue)

        self._feeds[lane] = [tail]
        for queue in few:
            self._at_hand(queue)

        def catch_up() -> None:
            if lane.generation == generation and not self._closed:
                feed = self._store.feed(
                    lane.id, lane.position + 1, lane.take_in, self._resume, until=state.last, on_end=caught_up
                )
                self._feeds[lane].insert(0, feed)

        self._catch_up = catch_up

    def catch_up(self) -> None:
        """Have the backlog fed, if there is one that waits for it. Whoever takes over more at the same time lets all of
        them be open first: a catch-up takes most of what the event loop has.
        """
        self._catch_up()
        self._catch_up = _nothing

    def _feed(self, start: int) -> Feed:
        return self._store.feed(self.lane.id, start, self.lane.take_in, self._resume)

    # A feed breaks, too, when its stream is deleted: nothing is settled or purged until that is ruled out.

    async def _resume(self, _last: int) -> int:
        self.lane.verified = -1
        await self.verify(self.lane)
        return self.lane.position + 1

    async def _resume_tail(self, _last: int) -> int:
        self.lane.verified = -1
        await self.verify(self.lane)
        return self.lane.fed_to + 1

    # ---- the later stream: only hours up to one ahead are fed

    async def feed_later(self) -> None:
        """Open a feed for the hours that have come near since the last call, close those of hours long empty."""
        async with self._turning:
            await self._turn_hours(self._store.now())

    async def _turn_hours(self, now: int) -> None:
        """One feed an hour: a filter of several hours costs nats-server a walk through the stream's subjects for each
        message (624 us at 6,000 subjects, instead of 10).
        """
        hour, next_hour = now // _HOUR, now // _HOUR + 1
        held = {subject.rpartition(".")[2] for subject in await self._store.counts(self.later.id)}
        for feed, hours in list(self._hours.items()):
            if not hours & held and all((due_hour(text) or 0) < hour - 1 for text in hours):
                del self._hours[feed]
                self._feeds[self.later].remove(feed)
                await feed.close()
        # What is no hour comes in, too, and goes to the dead letters from there. The last hour for a while as well: a
        # copy may be put after its time has come, and the hour has turned.
        wanted = {text for text in held if (due_hour(text) or 0) <= next_hour}
        wanted |= {str((now - _NEAR) // _HOUR), str(hour), str(next_hour)}
        fresh = sorted(wanted.difference(*self._hours.values()), key=lambda text: due_hour(text) or 0, reverse=True)
        apart, together = fresh[:_APART], fresh[_APART:]
        for some in [*([text] for text in apart), *([together] if together else [])]:
            feed = self._store.feed(self.later.id, 1, self._take_in_later, self._resume_later, hours=some)
            self._hours[feed] = {*some}
            self._feeds[self.later].append(feed)

    def _take_in_later(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        self.later.take_in_later(subject, sequence, at, headers, body)
        self._on_delayed()

    async def _resume_later(self, last: int) -> int:
        generation = self.later.generation
        self.later.verified = -1
        await self.verify(self.later)
        return last + 1 if self.later.generation == generation else 1
