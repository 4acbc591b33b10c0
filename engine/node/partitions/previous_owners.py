"""Withholds messages that a partition's previous owners still handle, until they have ended there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane.attempts import holder_of
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.queue.requeue import requeue
from evenlane.engine.core.wire import header_values
from evenlane.engine.node.partitions.crash_suspects import mark_suspects, suspect
from evenlane.engine.node.partitions.takeover import is_void

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from evenlane.engine.core.ports import BusyRecord, Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.ring.membership.records import HeldLane, HeldRecord


class PreviousOwners:
    """The messages of one partition (`lanes`) that previous owners hold. `busy` reads the in-flight records.

    Invariants:
    - The held messages themselves are in `Lane.held`. `_keys` has those of ordered topics, whose keys are out at their
      holder.
    - `_void` has the messages of ordered topics that were started before the subscription was reset. They come again in
      put order, so they aren't in `Lane.held`; instead the key of each waits behind a place that no message has. The
      epoch is that of their holder.
    - `_ended` has those that were settled here for their holder, so that none is settled twice; `_freed` those that
      were released.
    """

    def __init__(
        self,
        store: Store,
        lanes: tuple[FedLane, ...],
        busy: Callable[[], Awaitable[list[BusyRecord]]],
        ready: ReadyQueues,
        eligibility: Eligibility,
    ) -> None:
        self._store, self._lanes, self._busy = store, lanes, busy
        self._ready, self._eligibility = ready, eligibility
        self._keys: dict[MessageRef, Queue] = {}
        self._void: dict[MessageRef, tuple[int, Queue]] = {}
        self._ended: dict[FedLane, set[int]] = {lane: set() for lane in lanes}
        self._freed: dict[FedLane, set[int]] = {lane: set() for lane in lanes}

    async def hold(self, lane: FedLane, parts: Mapping[int, HeldLane]) -> None:
        """Act on the records of previous owners, by epoch; the lane withholds their messages already. Raises Lost."""
        for epoch, part in parts.items():
            await self._keep_keys(lane, part.running, epoch, void=is_void(part, lane))
            if not is_void(part, lane):
                self._settle(lane, part.done)
                self._note_failed(lane, part.failed)

    async def _keep_keys(self, lane: FedLane, sequences: list[int], epoch: int, *, void: bool) -> None:
        """Take the keys of held messages in ordered topics, so that no other message of these keys starts here."""
        for stored in await self._store.get(lane.id, sequences) if sequences else ():
            if stored is None or (key := header_values.key(stored.headers)) is None:
                continue
            queue = lane.queue_of(stored.subject.encode())
            if queue is not None and queue.order is not None:
                place = MessageRef(lane, stored.sequence)
                if void:
                    lane.held.pop(stored.sequence, None)
                    queue.order.admit(key, _placeholder_of(place))
                    self._void[place] = epoch, queue
                else:
                    queue.order.admit(key, place)
                    self._keys[place] = queue

    def _key_free(self, lane: FedLane, sequence: int) -> None:
        place = MessageRef(lane, sequence)
        if (queue := self._keys.pop(place, None)) is not None:
            self._eligibility.free(queue, place)

    def _settle(self, lane: FedLane, sequences: Iterable[int]) -> None:
        known = lane.held.keys()  # others are of a replaced stream, or known already
        for sequence in [each for each in sequences if each in known and each not in self._ended[lane]]:
            self._ended[lane].add(sequence)
            lane.settle(sequence, lane.generation, now_ns())
            self._key_free(lane, sequence)

    @staticmethod
    def _note_failed(lane: FedLane, failed: Iterable[tuple[int, int]]) -> None:
        for sequence, mark in failed:
            lane.log.merge_mark(sequence, mark, now_ns())

    def on_change(self, record: HeldRecord) -> None:
        """Settle held messages that have ended at their holder. If the subscription was reset since they were started,
        they are handled again.
        """
        for lane in self._lanes:
            if (part := record.lanes.get(lane.id.kind)) is None:
                continue
            if is_void(part, lane):
                self._release(lane, [each for each in part.done if self._is_holder(record, lane, each)])
            else:
                self._settle(lane, part.done)

    def _is_holder(self, record: HeldRecord, lane: FedLane, sequence: int) -> bool:
        """Whether this record's owner has started the message last; a later one may have started it again."""
        epoch, _ = self._void.get(MessageRef(lane, sequence), (0, None))
        return record.epoch in {epoch, holder_of(lane.marks.of.get(sequence, 0))}

    def release(self, record: HeldRecord) -> None:
        """Release messages whose holder lives, but won't handle them after all."""
        for lane in self._lanes:
            if (part := record.lanes.get(lane.id.kind)) is None:
                continue
            if not is_void(part, lane):
                self._note_failed(lane, [each for each in part.failed if each[0] in lane.held])
            self._release(lane, part.running)

    def _release(self, lane: FedLane, sequences: list[int]) -> None:
        self._freed[lane].update(sequences)
        for queue in requeue(lane, sequences, now_ns()):
            self._ready.on_queue_ready(queue)
        for place in [MessageRef(lane, sequence) for sequence in sequences]:
            if place in self._void:
                _, queue = self._void.pop(place)
                self._eligibility.free(queue, _placeholder_of(place))

    async def on_gone(self, record: HeldRecord) -> None:
        """Release messages whose holder is gone without ending them. They become suspects, for the holder may have died
        of them. Raises Lost.
        """
        if not record.is_running:
            return
        records = await self._busy()
        for lane in self._lanes:
            if (part := record.lanes.get(lane.id.kind)) is None:
                continue
            void = {place.sequence for place in self._void if place.lane is lane}
            known = (lane.held.keys() | void) & {*part.running}  # empty if the stream has been replaced since
            suspect(lane, mark_suspects(records, lane.id, record.epoch, known))
            self._release(lane, part.running)

    def is_durable(self, record: HeldRecord) -> bool:
        """Whether all that a holder has ended or released is durably settled."""
        return not any(
            lane.log.is_awaiting([*part.done, *(failed for failed, _ in part.failed), *self._freed[lane]])
            for lane in self._lanes
            if (part := record.lanes.get(lane.id.kind)) is not None
        )


def _placeholder_of(place: MessageRef) -> MessageRef:
    """The place that no message has."""
    return MessageRef(place.lane, -place.sequence)
