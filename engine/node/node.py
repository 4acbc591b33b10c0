"""The node: owns partitions, and moves their messages from feed to settle log."""

from __future__ import annotations

import asyncio
import random
from math import ceil
from typing import TYPE_CHECKING

import structlog

from engine import copies, names
from engine import headers as h
from engine.clock import now_ns
from engine.errors import InvalidName
from engine.index import Entry, Limits, Queue
from engine.message import Message
from engine.node.alarm import Alarm
from engine.node.counters import Counters
from engine.node.outcomes import Outcomes
from engine.node.partition import Partition, due_hour
from engine.node.reader import Reader
from engine.node.settler import Settler
from engine.node.share import groups_here, share_of
from engine.node.workers import Workers
from engine.ports import Lost, Refused
from engine.scheduler.fair import FairScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine.facts import Facts
    from engine.lane import HandOver, Lane
    from engine.names import Kind
    from engine.node.handlers import Handler
    from engine.ports import Store
    from engine.scheduler.interface import Scheduler
    from quota.topic import Topic
    from ring.records import HeldRecord

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_OPENED_AT_ONCE = 16
_LEAST_AHEAD = 4  # messages
_GONE_AT_ONCE = 200  # expired messages, say, in one turn of the loop
_DUE_AT_ONCE = 1_000  # of one partition, in one step
_HOURS_EVERY_S = 60.0
_PAUSE_S = 0.2
_SHARE_AFTER_S = 0.05  # other partitions that move with this one come or go in the same moment
_SHARED_AT_ONCE = 500  # projects in one turn of the loop
_PATIENCE_S = 0.15  # for handlers of a partition that is handed over: short ones needn't be told of in etcd
_LOOK_S = 0.005  # between two looks at whether what is being released has ended


class Node:
    """`topic_of` tells the topic of a project, None if there is none. Times in seconds but where
    a name says ns. `on_stop(reason)` is called when the node can't go on by itself, `on_fenced(reason)`
    when a newer owner is found to have taken something over.
    """

    def __init__(
        self,
        store: Store,
        facts: Facts,
        handler: Handler,
        topic_of: Callable[[str], Topic | None],
        *,
        env: str = "online",
        node_id: str = "node",
        concurrency: int = 64,
        limits: Limits | None = None,
        settle_interval: float = 0.1,
        scheduler: Scheduler[Queue] | None = None,
        on_stop: Callable[[str], None] | None = None,
        on_fenced: Callable[[str], None] | None = None,
    ) -> None:
        self.store, self.facts, self.env, self.id = store, facts, env, node_id
        self.counters = Counters()
        self.limits = limits or Limits()
        self.scheduler: Scheduler[Queue] = scheduler or FairScheduler(concurrency, facts.max_group_qps)
        self._alarm = Alarm(self._wake)
        self.partitions: dict[int, Partition] = {}
        self._topic_of, self._concurrency = topic_of, concurrency
        self._on_stop = on_stop or (lambda _reason: None)
        self._on_fenced = on_fenced or self._on_stop
        self._bands = {name: band for band, name in enumerate(facts.priorities)}
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        self._closing: dict[tuple[int, int], Partition] = {}  # by epoch, too: nothing of them starts any more
        self._mine: set[int] = set()  # partitions that are, or are being made, this node's
        self._shares: dict[str, int] = {}  # for how many of its groups a project's rules were told the scheduler
        self._sharing: asyncio.TimerHandle | None = None
        self._queues: dict[tuple[int, str, int, int], Queue] = {}
        self._by_project: dict[str, list[Queue]] = {}
        self._held: set[str] = set()
        self._clock_offset = 0
        self._stopping = False
        self._due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.settler = Settler(store, settle_interval, self._verify, self._missing, self._fenced)
        self.settler.on_lag_over = self._wake
        self.outcomes = Outcomes(store, env, self.counters, self._settle, self._hold, self._wake, random.random)
        self.reader = Reader(store, self.limits, self._lanes_of, self._subject_of, self._at_hand, self._missing)
        self.workers = Workers(
            handler, concurrency, self._take, self._more, self._handled, self._failed, self._ended, self._hung,
            self._returned,
        )  # fmt: skip

    # ---- life

    async def start(self) -> None:
        self._clock_offset = self.store.now() - now_ns()
        self._tasks += [
            asyncio.create_task(self._release_due(), name="due"),
            asyncio.create_task(self._turn_hours(), name="hours"),
        ]
        for task in [*self._tasks, self.settler.start(), *self.workers.start()]:
            task.add_done_callback(self._part_ended)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """A part that fails is a defect: better a node that ends and says so than one that stands still."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the node has failed", part=task.get_name(), exc_info=error)
            self._stopping = True
            self._on_stop(f"its part {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    # ---- partitions

    async def take_over(self, partitions: Iterable[int], epoch: int) -> None:
        """Own all these under one epoch: their messages come in when this returns. As `open`."""
        await asyncio.gather(*(self.open(number, epoch) for number in partitions))

    async def open(self, number: int, epoch: int, held: Iterable[HeldRecord] = ()) -> None:
        """Own a partition under this epoch, but for what former owners hold: its messages come in when this returns.
        A store that goes away meanwhile is waited for. Raises Fenced.
        """
        self._mine.add(number)
        async with self._opening:
            partition = await self._opened(number, epoch, list(held))
        for lane in partition.both:
            if lane.unsettled_news or lane.stragglers:
                self.settler.note(lane)
            if lane.durable_watermark > lane.purged:
                self.settler.tend(lane)
        self._share_anew()
        self._due.set()

    async def _opened(self, number: int, epoch: int, held: list[HeldRecord]) -> Partition:
        """The partition, open; begun anew as often as the store goes away meanwhile."""
        while True:
            partition = self.partitions[number] = Partition(
                self.store, number, epoch, self.limits, self._open_queue, self._at_hand, self._due.set
            )
            try:
                await partition.open(held)
                return partition
            except Lost as error:
                _log.info("the store went away during the take-over", partition=number, error=str(error))
                await self._abandon(partition)
            await asyncio.sleep(_PAUSE_S)

    def stop_partition(self, number: int) -> None:
        """From this moment on nothing more of it is handed out; what is being handled may end."""
        self._mine.discard(number)
        partition = self.partitions.pop(number, None)
        if partition is None:
            return
        self._closing[number, partition.lane.epoch] = partition
        for lane in partition.both:
            lane.stop([*self._running(lane), *self.outcomes.pending_of(lane)])
        self._forget_queues(number)
        self._share_anew(0)  # before another node has more

    async def hand_over(self, number: int, epoch: int, patience_s: float = _PATIENCE_S) -> dict[Kind, HandOver]:
        """After `stop_partition`: what the next owner has to know, by kind of stream, if anything. Handlers have
        `patience_s` to end, and what has ended so long to become durable; the rest is in the hand-over.
        """
        partition = self._closing.get((number, epoch))
        if partition is None:
            return {}  # it was never opened
        deadline = asyncio.get_running_loop().time() + patience_s
        await asyncio.gather(partition.close(), self._ended_and_durable(partition, deadline))
        told: dict[Kind, HandOver] = {}
        for lane in partition.both:
            lane.cut_off()
            self.settler.forget(lane)
            if lane.handover is not None and (lane.handover.running or lane.handover.done):
                told[lane.id.kind] = lane.handover
        return told if self._closing.pop((number, epoch), None) is not None else {}  # it may have been lost meanwhile

    async def _ended_and_durable(self, partition: Partition, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            self.settler.flush()
            waits = [
                lane for lane in partition.both if lane.unsettled_news or (lane.handover and lane.handover.running)
            ]
            if not waits:
                return
            await asyncio.sleep(_LOOK_S)

    async def drop_partition(self, number: int, epoch: int) -> None:
        """After `stop_partition`: it is another's by now, so nothing more of it is settled or told."""
        partition = self._closing.pop((number, epoch), None)
        if partition is not None:
            await self._abandon(partition)

    def held_changed(self, number: int, record: HeldRecord) -> None:
        """Some of what a former owner holds has ended there."""
        if (partition := self.partitions.get(number)) is not None:
            partition.held_changed(record)
            for lane in partition.both:
                self.settler.note(lane)

    def held_gone(self, number: int, record: HeldRecord) -> None:
        """A former owner has gone, and this was its last word: what hadn't ended is handed out here."""
        if (partition := self.partitions.get(number)) is not None:
            partition.held_gone(record)

    def held_durable(self, number: int, record: HeldRecord) -> bool:
        """Whether all that a former owner has ended is settled for good."""
        partition = self.partitions.get(number)
        return partition is not None and partition.durable(record)

    async def _abandon(self, partition: Partition) -> None:
        for lane in partition.both:
            lane.abandon()
            self.settler.forget(lane)
        await partition.close()

    def _running(self, lane: Lane) -> list[int]:
        """Its messages whose handlers' word is still to come: what a hung thread works on has failed already."""
        threads = not self.workers.handler.is_async
        return [
            message.sequence
            for message in self.workers.running
            if message.lane is lane and message.generation == lane.generation and not (message.given_up and threads)
        ]

    def _forget_queues(self, number: int) -> None:
        now = now_ns()
        gone = {queue.project for key, queue in self._queues.items() if key[0] == number}
        for key in [key for key in self._queues if key[0] == number]:
            queue = self._queues.pop(key)
            queue.asleep = True  # nothing reads for it any more
            self.scheduler.empty(queue, now)
        for project in gone:
            left = [queue for queue in self._by_project[project] if queue.partition != number]
            if left:
                self._by_project[project] = left
            else:
                del self._by_project[project]

    async def stop(self, grace: float = 25.0) -> bool:
        """Drain: start nothing more, wait for what runs, settle. Ends within `grace` seconds; True if all that
        was begun has ended and is durably settled.
        """
        self._stopping = True
        self._alarm.cancel()
        if self._sharing is not None:
            self._sharing.cancel()
        deadline = asyncio.get_running_loop().time() + grace
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        stuck = await self.workers.drain(deadline - min(2.0, grace / 4))
        if stuck:
            _log.warning("handlers did not end in time: their messages will be handled again", count=stuck)
        put = await self.outcomes.drain(deadline - min(1.0, grace / 8))
        each = [*self.partitions.values(), *self._closing.values()]
        await asyncio.gather(*(partition.close() for partition in each), return_exceptions=True)
        await self.reader.stop()
        clean = await self.settler.stop(deadline)
        if not clean:
            _log.warning("not all that was done could be settled: it will be handled again")
        return clean and put and not stuck

    @property
    def trusted_until(self) -> int:
        """Until when (monotonic ns) handlers may start."""
        return self.workers.trusted_until

    def trust(self, until: int) -> None:
        """The lease is trusted until then (ns of `now_ns`); work that had stopped for want of it goes on."""
        self.workers.trusted_until = until
        self.workers.wake()

    def topic_changed(self, project: str, topic: Topic | None) -> None:
        """Act on a topic's new rules at once, for the backlog that is there, too (X4)."""
        now = now_ns()
        self._configure(project, topic, now)
        for queue in self._by_project.get(project, ()):
            self._apply(queue, topic)
            if queue.asleep:
                queue.lay_down(self.limits)
                self.scheduler.empty(queue, now)
                self.reader.taken()
            else:
                self._at_hand(queue)
        self.workers.wake()

    def why(self, queue: Queue) -> str | None:
        return self.scheduler.why(queue, now_ns())

    def queues_of(self, project: str) -> Sequence[Queue]:
        """Those that have had a message since the node's start; a view, which may grow."""
        return self._by_project.get(project, ())

    @property
    def projects(self) -> int:
        """Projects with queues here."""
        return len(self._by_project)

    @property
    def backlog(self) -> int:
        """Messages known and waiting, on all partitions, delayed ones included."""
        return sum(queue.backlog for queue in self._queues.values()) + sum(
            partition.later.delayed for partition in self.partitions.values()
        )

    # ---- index

    def _open_queue(self, lane: Lane, subject: bytes, entry: Entry) -> Queue | None:
        """The queue of a subject seen for the first time; a message that has none goes to the dead letters."""
        words = [word.decode("utf-8", "replace") for word in subject.split(b".")]
        project, number, band = words[3], words[4], self._bands.get(words[5])
        try:
            names.check_project(project)
        except InvalidName as error:
            self._stray(lane, subject, entry, str(error))
            return None
        if band is None:
            known = ", ".join(self.facts.priorities)
            self._stray(lane, subject, entry, f"there is no priority {words[5]!r}: only {known}")
            return None
        if not (number.isascii() and number.isdigit()) or len(number) > 6 or (number[0] == "0" and number != "0"):
            self._stray(lane, subject, entry, f"{number!r} is no group number")
            return None
        if lane.id.kind == "later" and due_hour(words[6]) is None:
            self._stray(lane, subject, entry, f"{words[6]!r} is no hour")
            return None
        return self._queue(lane.id.partition, project, int(number), band)

    def _queue(self, partition: int, project: str, group: int, band: int) -> Queue:
        key = (partition, project, group, band)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(project, group, self.facts.priorities[band], band, partition)
            siblings = self._by_project.get(project)
            topic = self._topic_of(project)
            if siblings is None:
                siblings = self._by_project[project] = []
                self._configure(project, topic, now_ns())
                if topic is None:
                    _log.warning("messages of a project without a topic wait until it has one", project=project)
            siblings.append(queue)
            self._apply(queue, topic)
        return queue

    def _configure(self, project: str, topic: Topic | None, now: int) -> None:
        """Its rules, as far as they are this node's to keep."""
        if topic is None or project in self._held:
            self._shares.pop(project, None)
            self.scheduler.configure(project, None, now)
            return
        groups = self._shares[project] = groups_here(project, topic, self._mine, self.facts.partitions)
        self.scheduler.configure(project, share_of(topic, groups), now)

    def _share_anew(self, after_s: float = _SHARE_AFTER_S) -> None:
        """Partitions came or went: perhaps other parts of the topics are this node's now."""
        if self._stopping:
            return
        if self._sharing is not None:
            self._sharing.cancel()
        loop = asyncio.get_running_loop()
        self._sharing = loop.call_later(after_s, lambda: self._share(list(self._by_project)))

    def _share(self, projects: list[str]) -> None:
        self._sharing = None
        for project in projects[:_SHARED_AT_ONCE]:
            topic = self._topic_of(project)
            if topic is None or project not in self._by_project:
                self._shares.pop(project, None)
            elif groups_here(project, topic, self._mine, self.facts.partitions) != self._shares.get(project):
                self._configure(project, topic, now_ns())
                self.workers.wake()
        if rest := projects[_SHARED_AT_ONCE:]:
            self._sharing = asyncio.get_running_loop().call_later(0, self._share, rest)

    def _apply(self, queue: Queue, topic: Topic | None) -> None:
        queue.topic = topic
        if topic is not None:
            queue.read_ahead(min(self.limits.read_ahead, _needed_soon(topic, self.facts.max_group_qps)))
        queue.asleep = topic is None or topic.state == "paused"
        queue.ttl = int(topic.ttl * _SECOND) if topic is not None else 0
        queue.ack_wait = int(topic.ack_wait * _SECOND) if topic is not None else 0

    def _stray(self, lane: Lane, subject: bytes, entry: Entry, reason: str) -> None:
        text = subject.decode("utf-8", "replace")
        _log.warning("a message belongs to no queue: it goes to the dead letters", subject=text, reason=reason)
        stream = names.stream(self.env, lane.id)
        copy = copies.stray(text, stream, entry.sequence, entry.at, entry.headers, entry.body, self.env, reason)
        self.outcomes.stray(lane, entry.sequence, copy)

    def _at_hand(self, queue: Queue) -> None:
        """A queue whose hand was empty has something to hand out, or to be read."""
        if queue.hand:
            self.scheduler.ready(queue, now_ns())
            self.workers.wake()
        else:
            self.reader.want(queue)

    def _wake(self) -> None:
        self.workers.wake()

    def _lanes_of(self, number: int) -> tuple[Lane, Lane] | None:
        partition = self.partitions.get(number)
        return partition.both if partition is not None else None

    def _subject_of(self, queue: Queue) -> str:
        return names.lane_subject(self.env, queue.partition, queue.project, queue.group, queue.priority)

    # ---- schedule

    def _take(self, now: int) -> Message | None:
        """The next message to handle; the lease is looked at before each one."""
        if self._stopping or self.settler.lagging or self.outcomes.crowded or now >= self.workers.trusted_until:
            return None
        for _ in range(_GONE_AT_ONCE):
            queue = self.scheduler.next(now)
            if queue is None:
                self._alarm.set(self.scheduler.wake_at(), now)
                return None
            message = self._hand_out(queue, now)
            if message is not None:
                return message
        asyncio.get_running_loop().call_soon(self._wake)  # others have a turn of the loop, too
        return None

    def _more(self, message: Message, now: int) -> Message | None:
        """For a batch: another message of the same queue."""
        queue = message.queue
        while queue.hand and self.scheduler.again(queue, now):
            another = self._hand_out(queue, now)
            if another is not None:
                return another
        return None

    def _hand_out(self, queue: Queue, now: int) -> Message | None:
        """The queue's head, None if it is gone or had outlived its time to live."""
        hand = queue.hand
        if not hand:  # its stream was replaced meanwhile
            self.scheduler.empty(queue, now)
            self.scheduler.give_back(queue, now)
            return None
        entry = queue.take(self.limits)
        if not hand:
            self.scheduler.empty(queue, now)
        if self.reader.starved:
            self.reader.taken()
        if queue.behind and len(hand) < queue.low and not queue.loading:
            self.reader.want(queue)
        if self._expired(entry, queue, now):
            self.counters.expired += 1
            queue.failed += 1
            self.scheduler.give_back(queue, now)
            self._settle(entry[0], entry[1], entry[0].generation)
            return None
        return Message(entry, queue, self.env, self.id, now)

    def _expired(self, entry: Entry, queue: Queue, now: int) -> bool:
        headers, since = entry[3], entry[2]
        store_now = now + self._clock_offset
        if b"\r\nEvenlane-" in headers:
            expires = h.number(headers, h.EXPIRES, 0)
            if expires:
                return expires <= store_now
            since = h.number(headers, h.DUE, since)  # a delayed message's time begins when it is due (K5)
        return 0 < queue.ttl <= store_now - since

    # ---- what became of it

    def _handled(self, message: Message, now: int) -> None:
        entry = message._entry  # noqa: SLF001 - saves three property calls for each message
        lane = entry[0]
        if lane.settle(entry[1], message.generation, now):
            self.counters.handled += 1
            message._queue.handled += 1  # noqa: SLF001
            self.settler.note(lane)
        else:
            self.counters.void += 1

    def _failed(self, message: Message, error: BaseException) -> None:
        self.counters.failed += 1
        message.queue.failed += 1
        if message.given_up:
            self.counters.given_up += 1
        if not message.lane.current(message.sequence, message.generation):
            self.counters.void += 1
        else:
            self.outcomes.failed(message, error)

    def _returned(self, message: Message) -> None:
        """Its handler wasn't started, as the lease was over: it waits on, should the lease be renewed."""
        lane = message.lane
        if message.generation == lane.generation:
            lane.bring_back(message.queue, message.sequence)
            self._at_hand(message.queue)
        else:
            lane.untouched(message.sequence, message.generation)

    def _ended(self, message: Message, now: int, count: int) -> None:
        self.scheduler.done(message._queue, now, now - message.started, count)  # noqa: SLF001

    def _settle(self, lane: Lane, sequence: int, generation: int) -> None:
        if lane.settle(sequence, generation, now_ns()):
            self.settler.note(lane)

    def _missing(self, lane: Lane, sequence: int, generation: int) -> None:
        self.counters.missing += 1
        _log.warning("a message that was indexed is gone from its stream", lane=lane.id, sequence=sequence)
        self._settle(lane, sequence, generation)

    def _hold(self, project: str, on: bool) -> None:
        """Its copies are refused: hand out no more of it meanwhile."""
        (self._held.add if on else self._held.discard)(project)
        self._configure(project, self._topic_of(project), now_ns())
        self.workers.wake()

    def _hung(self, threads: int) -> None:
        if threads > self._concurrency // 4:
            self._on_stop(
                f"{threads} of {self._concurrency} handler threads hang: give the handler time limits of its own"
            )

    # ---- ownership and identity

    async def _verify(self, lane: Lane) -> None:
        partition = self.partitions.get(lane.id.partition)
        if partition is not None:
            await partition.verify(lane)

    def _fenced(self, lane: Lane) -> None:
        self._on_fenced(f"a newer owner has taken over {lane.id.kind} {lane.id.partition}: nothing more is settled")

    # ---- later

    async def _release_due(self) -> None:
        while True:
            self._due.clear()
            now = self.store.now()
            nearest = now + 30 * _SECOND
            for partition in self.partitions.values():
                due = partition.later.next_due()
                if due is not None and due <= now:
                    for queue in partition.later.release_due(now, _DUE_AT_ONCE):
                        if not queue.hand:
                            self._at_hand(queue)
                        else:
                            self.reader.want(queue)
                    due = partition.later.next_due()
                if due is not None:
                    nearest = min(nearest, due)
            wait = (nearest - self.store.now()) / _SECOND
            try:
                # (not wait_for, which before Python 3.12 may swallow a cancellation)
                async with asyncio.timeout(max(0.002, wait)):
                    await self._due.wait()
                await asyncio.sleep(0.005)  # many come at once: look once for all of them
            except TimeoutError:
                pass

    async def _turn_hours(self) -> None:
        while True:
            await asyncio.sleep(_HOURS_EVERY_S)
            self._clock_offset = self.store.now() - now_ns()
            for partition in [each for each in self.partitions.values() if each.opened]:
                try:
                    await partition.feed_later()
                except (Lost, Refused) as error:
                    _log.debug("hours not turned", partition=partition.number, error=str(error))


def _needed_soon(topic: Topic, max_group_qps: float) -> int:
    """How many messages of one queue may be handed out within about a second: more needn't be at hand."""
    rate = min(topic.qps, max_group_qps) if topic.borrow else topic.qps / topic.groups
    return max(_LEAST_AHEAD, ceil(rate) + topic.burst)
