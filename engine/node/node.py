"""The node: owns partitions, and moves their messages from feed to settle log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.queue.positions import locate_lane
from evenlane.engine.node.node_parts import NodeParts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.positions import LanePosition
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.partitions.partition import Partition
    from evenlane.engine.node.settle.last_errors import LastErrors
    from evenlane.quota.topics.topic import Topic

_log = structlog.get_logger(__name__)


class Node(NodeParts):
    """A node at work: it starts and stops its parts, and passes their events on to one another."""

    _tasks: Sequence[asyncio.Task[None]] = ()
    _owner: asyncio.Task[Any] | None = None  # the task that has started the node

    # ---- life

    async def start(self) -> None:
        self.clock.measure()
        self._owner = asyncio.current_task()
        self._tasks = [
            asyncio.create_task(self._due.run(), name="due"),
            asyncio.create_task(self.owned.turn_hours(), name="hours"),
        ]
        for task in [*self._tasks, self.settler.start(), *self.pool.start()]:
            task.add_done_callback(self._on_part_end)

    def _is_ending(self) -> bool:
        return self.dispatcher.stopped or (self._owner is not None and self._owner.cancelling() > 0)

    def _on_part_end(self, task: asyncio.Task[None]) -> None:
        """Stop the node if one of its parts has failed. That is a defect: better a node that ends and logs it than one
        that does nothing.
        """
        if task.cancelled() and self._is_ending():
            return
        error = asyncio.CancelledError("from within") if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a part of the node has failed", part=task.get_name(), exc_info=error)
            self.dispatcher.stopped = True
            self._on_stop(f"its task {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    async def take_over(self, partitions: Iterable[int], epoch: int) -> None:
        """Own these partitions under one epoch. When the call returns, their messages are being delivered.
        Raises Fenced.
        """
        await asyncio.gather(*(self.owned.open(number, epoch) for number in partitions))

    async def stop(self, grace: float = 25.0, *, process_ends: bool = True) -> bool:
        """Drain: start no more messages, wait for running handlers, settle. Ends within `grace` seconds.

        True if all messages that were started have ended and are durably settled. `process_ends` says that handlers
        left running end with the process and have killed nothing; otherwise no clean end is written to the logs.
        """
        self.dispatcher.stop()
        self.queues.shares.stop()
        self.eligibility.stop()
        self.pauses.stop()
        deadline = asyncio.get_running_loop().time() + grace
        proof = self._renewal.proof
        tasks = [*self._tasks, *([proof] if proof else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stuck = await self.pool.drain(deadline - min(2.0, grace / 4))
        if stuck:
            _log.warning("handlers did not end in time: their messages will be handled again", count=len(stuck))
        put = await self.failures.drain(deadline - min(1.0, grace / 8))
        self.settlement.stop()
        self.gate.close()
        await self.owned.close()
        await self.ready.reader.stop()
        if process_ends:
            self.owned.end()
        clean = await self.settler.stop(deadline)
        if not clean:
            _log.warning("not all that was done could be settled: it will be handled again")
        return clean and put and not stuck

    @property
    def trusted_until(self) -> int:
        """The time (monotonic ns) until which handlers may start."""
        return self.trusted.until

    def trust(self, until: int) -> None:
        """Trust the lease until then (ns of `now_ns`). If trust had lapsed, work resumes once the settle logs have
        shown that no other node has taken over meanwhile.
        """
        self._renewal.renew(until)

    def _on_hung_threads(self, threads: int) -> None:
        if threads > self._concurrency // 4:
            self._on_stop(
                f"{threads} of {self._concurrency} handler threads hang: give the handler time limits of its own"
            )

    # ---- state

    @property
    def in_flight(self) -> list[Message]:
        """The messages that a handler has, or is about to get."""
        return [*self.workers.running, *self.gate.messages]

    def find_messages(self, task: asyncio.Task[Any]) -> list[Message]:
        """The messages whose handler or fallback runs in a task; empty if it runs none. Thread-safe."""
        return self.workers.find_messages(task) or self.failures.find_fallback(task)

    def list_out(self, lane: Lane) -> set[int]:
        """The lane's messages that a handler has, or is about to get, or whose copy isn't acknowledged yet."""
        return {*self.workers.list_running(lane), *self.gate.list_recorded(lane), *self.failures.list_pending(lane)}

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """The partitions that are open, or being opened."""
        return self.owned.partitions

    def locate_lanes(self, now: int) -> dict[int, LanePosition]:
        """The positions of the lanes, by partition; `now` is monotonic ns. Those that aren't known are left out, and
        all of them if the lease isn't trusted: a newer owner may have come further.
        """
        if now >= self.trusted_until:
            return {}
        found = {number: locate_lane(partition.lane) for number, partition in self.partitions.items()}
        return {number: position for number, position in found.items() if position is not None}

    @property
    def last_errors(self) -> LastErrors:
        """Each project's last error."""
        return self._failure_log.last_errors

    @property
    def backlog(self) -> int:
        """The number of waiting messages known, on all partitions, delayed ones included."""
        return self.queues.backlog + sum(
            len(lane.delayed) for partition in self.partitions.values() for lane in partition.lanes
        )

    def on_topic_change(self, project: str, topic: Topic | None) -> None:
        """Apply a topic's new rules at once, to the existing backlog, too (X4)."""
        self.queues.shares.configure(project)
        known = self.queues.of_project(project)
        if known and (before := known[0].rules.topic) is not None and (topic is None or topic.push != before.push):
            self.pauses.end(project)  # the pause was for the old endpoint
        self.queues.apply_topic(project, topic)
        for queue in known:
            self.eligibility.on_rules_change(queue)
        self.withheld.on_rules_change(project)

    # ---- NodeEvents

    def on_message_missing(self, queue: Queue, lane: Lane, sequence: int, generation: int) -> None:
        self.settlement.settle_unread(queue, lane, sequence, generation)

    def on_records_change(self) -> None:
        self.eligibility.on_records_change()
        self.signal.notify()

    def on_records_idle(self) -> None:
        self.eligibility.on_recorded_gone()

    def on_stream_replaced(self, lane: FedLane) -> None:
        self.owned.feed_again(lane)

    def on_fenced(self, lane: Lane, reason: str) -> None:
        if not self.dispatcher.stopped:  # or each lane of a lost lease would log it
            _log.warning("fenced: a newer owner settles", **lane_fields(lane), reason=reason)
        self._on_fenced(f"it can't settle {lane.id.kind} {lane.id.partition} any more: {reason}")
