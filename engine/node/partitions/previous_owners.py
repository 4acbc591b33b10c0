"""What the handlers of a partition's former owners still work on: it is kept back here until it has ended there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.wire import header_values
from evenlane.engine.node.partitions.crash_suspects import mark_suspects, suspect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from evenlane.engine.core.ports import BusyRecord, Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.ring.membership.records import HeldLane, HeldRecord


class PreviousOwners:
    """Of one partition with these `lanes`. `busy` reads the in-flight records."""

    def __init__(
        self,
        store: Store,
        lanes: tuple[FedLane, FedLane],
        busy: Callable[[], Awaitable[list[BusyRecord]]],
        ready: ReadyQueues,
        eligibility: Eligibility,
    ) -> None:
        self._store, self._lanes, self._busy = store, lanes, busy
        self._ready, self._eligibility = ready, eligibility
        self._keys: dict[MessageRef, Queue] = {}  # of ordered topics: whose keys are out at a former owner's
        self._ended: dict[FedLane, set[int]] = {lane: set() for lane in lanes}
        self._freed: dict[FedLane, set[int]] = {lane: set() for lane in lanes}

    async def hold(self, lane: FedLane, parts: Iterable[HeldLane]) -> None:
        """Act on what they hold: the lane keeps it back already. Raises Lost."""
        for part in parts:
            await self._keep_keys(lane, part.running)
            self._settle(lane, part.done)
            self._note_failed(lane, part.failed)

    async def _keep_keys(self, lane: FedLane, sequences: list[int]) -> None:
        """In ordered topics, the keys of what a former owner holds are out there: nothing else of them goes here."""
        for stored in await self._store.get(lane.id, sequences) if sequences else ():
            if stored is None or (key := header_values.key(stored.headers)) is None:
                continue
            queue = lane.queue_of(stored.subject.encode())
            if queue is not None and queue.order is not None:
                place = MessageRef(lane, stored.sequence)
                queue.order.admit(key, place)
                self._keys[place] = queue

    def _key_free(self, lane: FedLane, sequence: int) -> None:
        place = MessageRef(lane, sequence)
        if (queue := self._keys.pop(place, None)) is not None:
            self._eligibility.free(queue, place)

    def _settle(self, lane: FedLane, sequences: Iterable[int]) -> None:
        known = lane.held.keys()  # else the stream has been replaced since, or it is known already
        for sequence in [each for each in sequences if each in known and each not in self._ended[lane]]:
            self._ended[lane].add(sequence)
            lane.settle(sequence, lane.generation, now_ns())
            self._key_free(lane, sequence)

    @staticmethod
    def _note_failed(lane: FedLane, failed: Iterable[tuple[int, int]]) -> None:
        for sequence, mark in failed:
            lane.log.mark_as_told(sequence, mark, now_ns())

    def changed(self, record: HeldRecord) -> None:
        """Some of what one of them holds has ended there."""
        for lane in self._lanes:
            if (part := record.lanes.get(lane.id.kind)) is not None:
                self._settle(lane, part.done)

    def let_go(self, record: HeldRecord) -> None:
        """Its holder lives, and doesn't handle this after all."""
        for lane in self._lanes:
            if (part := record.lanes.get(lane.id.kind)) is None:
                continue
            self._note_failed(lane, [each for each in part.failed if each[0] in lane.held])
            self._let_go(lane, part.running)

    def _let_go(self, lane: FedLane, sequences: list[int]) -> None:
        self._freed[lane].update(sequences)
        for queue in lane.take_back(sequences, now_ns()):
            self._ready.queue_ready(queue)

    async def gone(self, record: HeldRecord) -> None:
        """One of them has gone, and this was its last word: what it didn't end is handed out here, and with care, as it
        may have died of it. Raises Lost.
        """
        if not record.running:
            return
        records = await self._busy()
        for lane in self._lanes:
            if (part := record.lanes.get(lane.id.kind)) is None:
                continue
            known = lane.held.keys() & {*part.running}  # none any more if the stream has been replaced since
            suspect(lane, mark_suspects(records, lane.id, record.epoch, known))
            self._let_go(lane, part.running)

    def durable(self, record: HeldRecord) -> bool:
        """Whether all that one of them has ended is settled for good."""
        return not any(
            lane.log.awaits([*part.done, *(failed for failed, _ in part.failed), *self._freed[lane]])
            for lane in self._lanes
            if (part := record.lanes.get(lane.id.kind)) is not None
        )
