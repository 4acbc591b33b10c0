"""Reads unloaded payloads, by sequence, when their turn is near, and refills queues from their spill, by subject."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.queue.entry import entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.queues.owned_lanes import OwnedLanes
    from evenlane.engine.node.queues.payload_memory import PayloadMemory

_log = structlog.get_logger(__name__)

_BATCH = 128  # messages per read
_BATCH_BYTES = 256 << 10  # bytes per read, estimated from the queue's mean size
_READS_AT_ONCE = 32
_LARGE = 64 << 10  # bytes; reads of larger messages are limited, so that they don't hold up all others:
_LARGE_AT_ONCE = 4
_PAUSE_S = 0.2
_REFILL = 16_384  # sequences per scan


class PayloadReader:
    """Reads for the queues of `lanes`, one read per queue at a time. `on_ready(queue)` is called when payloads are
    ready, `on_missing(queue, lane, sequence, generation)` when a message isn't in its stream, `on_short()` when no
    memory was freed for a second.

    Invariant: `queue.loading` is set exactly while a task of this reader works on the queue.
    """

    def __init__(
        self,
        store: Store,
        memory: PayloadMemory,
        lanes: OwnedLanes,
        env: str,
        on_ready: Callable[[Queue], None],
        on_missing: Callable[[Queue, FedLane, int, int], None],
        on_short: Callable[[], None],
    ) -> None:
        self._store, self._memory, self._lanes, self._env = store, memory, lanes, env
        self._on_ready, self._on_missing, self._on_short = on_ready, on_missing, on_short
        self._gate, self._large = asyncio.Semaphore(_READS_AT_ONCE), asyncio.Semaphore(_LARGE_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def want(self, queue: Queue) -> None:
        """Read more payloads of this queue, unless a read is under way."""
        if queue.loading or queue.rules.asleep or not queue.behind:
            return
        if queue.order is not None and queue.order.full and not queue.order.next:
            return  # messages would be turned away
        queue.loading = True
        task = asyncio.create_task(self._work(queue))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, queue: Queue) -> None:
        again = False
        try:
            if queue.mean_size < _LARGE:
                again = await self._pass(queue, self._memory.limits.payload_bytes)
            else:  # large messages get a few reads and three quarters of the memory; the rest is for small reads
                async with self._large:
                    again = await self._pass(queue, self._memory.limits.payload_bytes * 3 // 4)
        finally:
            queue.loading = False
            queue.behind = bool(queue.unread or queue.spilled)
        if queue.ready:
            self._on_ready(queue)
        elif again and queue.behind:
            self.want(queue)

    async def _pass(self, queue: Queue, room: int) -> bool:
        async with self._gate:
            while not await self._memory.has_room(room):
                self._on_short()
            return await self._bring(queue)

    async def _bring(self, queue: Queue) -> bool:
        """Refill and read. True if it makes sense to go on at once even if no message became ready."""
        while not queue.rules.asleep:
            lanes = self._lanes.lanes.get(queue.partition)
            if lanes is None:
                return False
            if not queue.unread and lanes[0].is_lacking(self._subject_of(queue).encode()):
                return False  # the backlog is still being delivered: the end of the catch-up asks again
            try:
                if not queue.unread and queue.spilled:
                    await self._refill(queue, lanes[0])
                if queue.unread:
                    await self._read(queue, lanes)
                return True
            except (Lost, Refused) as error:
                # the read may have been too large, and the server may have cut the connection for it
                queue.mean_size = min(2 * queue.mean_size, self._store.max_payload)
                _log.debug("reading again", queue=self._subject_of(queue), error=str(error))
            await asyncio.sleep(_PAUSE_S)
        return False

    async def _read(self, queue: Queue, lanes: Sequence[FedLane]) -> None:
        mean = max(1, queue.mean_size)
        free = min(_BATCH_BYTES, self._memory.free)
        count = max(1, min(_BATCH, queue.rules.ahead - len(queue.ready), free // mean))
        with self._memory.reserve(count * mean):
            await self._fetch(queue, lanes, count)

    async def _fetch(self, queue: Queue, lanes: Sequence[FedLane], count: int) -> None:
        read = queue.next_to_read(count)
        lane = next(each for each in lanes if each.id.kind == read.kind)
        generation, incarnation = lane.generation, self._store.incarnation
        try:
            found = await self._store.get(lane.id, read.sequences)
            # "Not found" counts only if the answer came from the very stream that was fed (E12).
            if None in found and lane.verified != incarnation:
                raise Lost("the lane's identity isn't verified yet")  # noqa: TRY301 - handled like a failed read
        except BaseException:
            if queue.finish_read(read) and lane.generation == generation:
                queue.fail_read(read)
            raise
        if not queue.finish_read(read) or lane.generation != generation:
            return
        for sequence, stored in zip(read.sequences, found, strict=True):
            if stored is None:
                self._on_missing(queue, lane, sequence, generation)
            else:
                entry = entry_of(lane, sequence, stored.at, stored.headers, stored.body)
                if read.turns:
                    queue.requeue(entry, self._memory.limits)
                else:
                    queue.hold(entry, self._memory.limits)

    async def _refill(self, queue: Queue, lane: FedLane) -> None:
        """Take the spill's next sequences; messages that the feed delivers meanwhile stay in the spill."""
        subject = self._subject_of(queue)
        position, generation, before, refills = lane.fed_to, lane.generation, queue.spilled, queue.refills
        found = await self._store.scan(lane.id, subject, queue.spill_from, _REFILL)
        if lane.generation != generation or queue.refills != refills:
            return
        known = [s for s in found if s <= position]
        queue.waiting.extend([s for s in known if not lane.must_keep_out(subject.encode(), s)])
        if len(found) == _REFILL and len(known) == len(found):
            queue.spilled = max(1, queue.spilled - len(known))
            queue.spill_from = known[-1] + 1
        else:  # the scan found all; only messages that arrived since are left
            queue.spilled -= before
            queue.spill_from = position + 1

    def _subject_of(self, queue: Queue) -> str:
        return names.lane_subject(self._env, queue.partition, queue.project, queue.group, queue.priority)
