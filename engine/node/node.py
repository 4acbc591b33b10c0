"""The node: owns partitions, and moves their messages from feed to settle log."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import structlog

from engine import copies, names
from engine import headers as h
from engine.clock import now_ns
from engine.errors import InvalidName
from engine.index import Entry, Limits, Queue
from engine.marks import one_less
from engine.message import Message
from engine.node.alarm import Alarm
from engine.node.calls import Calls
from engine.node.complaints import Complaints
from engine.node.counters import Counters
from engine.node.fallback import Fallback
from engine.node.gate import Gate
from engine.node.holdings import Holdings
from engine.node.later import Later
from engine.node.outcomes import Death, Outcomes, described
from engine.node.partition import Partition, due_hour
from engine.node.pauses import Pauses
from engine.node.queues import Queues
from engine.node.reader import Reader
from engine.node.settler import Settler
from engine.node.turns import Turns
from engine.node.workers import Workers
from engine.order import Place
from engine.scheduler.fair import FairScheduler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from engine.facts import Facts
    from engine.lane import Lane
    from engine.message import Pause
    from engine.node.handlers import Handler
    from engine.ports import Store
    from engine.scheduler.interface import Scheduler
    from quota.topic import Topic

_log = structlog.get_logger(__name__)

_SHORT_PAUSE_S = 1.0  # for which payloads stay at hand
_SHORTEST_PAUSE_S = 0.01
_RECLAIMED_S = 1.0  # for which a queue whose payloads were given up isn't read again
_GONE_AT_ONCE = 200  # expired messages, say, in one turn of the loop
_GROUPS = 1_000_000  # fewer of them has a topic


class Node:
    """`topic_of` tells the topic of a project, None if there is none, `draining_of` its groups that are only emptied;
    `push` handles messages of topics that are pushed, `fallback` takes what would become a dead letter. Times in
    seconds but where a name says ns. `on_stop(reason)` is called when the node can't go on by itself,
    `on_fenced(reason)` when a newer owner is found to have taken something over.
    """

    def __init__(
        self,
        store: Store,
        facts: Facts,
        handler: Handler,
        topic_of: Callable[[str], Topic | None],
        *,
        draining_of: Callable[[str], Sequence[int]] = lambda _: (),
        env: str = "online",
        node_id: str = "node",
        concurrency: int = 64,
        limits: Limits | None = None,
        settle_interval: float = 0.1,
        scheduler: Scheduler[Queue] | None = None,
        push: Callable[[Message], Awaitable[None]] | None = None,
        fallback: Handler | None = None,
        on_stop: Callable[[str], None] | None = None,
        on_fenced: Callable[[str], None] | None = None,
    ) -> None:
        self.store, self.facts, self.env, self.id = store, facts, env, node_id
        self.counters = Counters()
        self.limits = limits or Limits()
        self.scheduler: Scheduler[Queue] = scheduler or FairScheduler(concurrency, facts.max_group_qps)
        self._alarm = Alarm(self._wake)
        self._concurrency = concurrency
        self._on_stop = on_stop or (lambda _reason: None)
        self._on_fenced = on_fenced or self._on_stop
        self._bands = {name: band for band, name in enumerate(facts.priorities)}
        self._clock_offset = 0
        self._stopping = False
        self._gone = 0  # messages that were taken and not handled, since a queue was last set aside for it
        self._aside: list[Queue] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.holdings = Holdings(store, self.limits, self._open_queue, self._at_hand, self._delayed)
        self._later = Later(store, self.holdings.partitions, self._came_due, self._look_at_clock)
        self.queues = Queues(facts, self.limits, self.scheduler, topic_of, draining_of, self.holdings.mine, self._wake)
        self.settler = Settler(
            store, settle_interval, self.holdings.verify, self._missing, self._fenced,
            limited=facts.max_queue_backlog is not None,
        )  # fmt: skip
        self.settler.on_lag_over, self.settler.trusted = self._wake, self._is_trusted
        self.outcomes = Outcomes(
            store, env, self.counters, self._ends, self._hold, self._wake, random.random, self._is_trusted
        )
        self.reader = Reader(
            store, self.limits, self.holdings.lanes_of, self._subject_of, self._at_hand, self._unread, self._reclaim
        )
        self.turns = Turns(self.limits, self._at_hand, self.settler.note, store.now, self._hold_ordered)
        self.pauses = Pauses(self._pause)
        self._complaints = Complaints()
        self.gate = Gate(store, env, self._wake, self._late, max(1, concurrency // 2))
        if fallback is not None:
            self.outcomes.fallback = Fallback(fallback, self.gate)
        self._calls = Calls(handler, push, concurrency)
        self.workers = Workers(
            self._calls, concurrency, self.gate, self.scheduler, self._take, self._more, self._handled, self._failed,
            self._hung, self._returned, self._paused,
        )  # fmt: skip
        self.holdings.join(self.queues, self.settler, self.outcomes, self.workers, self.gate, self.turns)

    # ---- life

    async def start(self) -> None:
        self._look_at_clock()
        self._tasks += self._later.start()
        for task in [*self._tasks, self.settler.start(), *self.workers.start()]:
            task.add_done_callback(self._part_ended)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """A part that fails is a defect: better a node that ends and says so than one that stands still."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the node has failed", part=task.get_name(), exc_info=error)
            self._stopping = True
            self._on_stop(f"its part {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    async def take_over(self, partitions: Iterable[int], epoch: int) -> None:
        """Own all these under one epoch: their messages come in when this returns. Raises Fenced."""
        await asyncio.gather(*(self.holdings.open(number, epoch) for number in partitions))

    async def stop(self, grace: float = 25.0) -> bool:
        """Drain: start nothing more, wait for what runs, settle. Ends within `grace` seconds; True if all that
        was begun has ended and is durably settled.
        """
        self._stopping = True
        self._alarm.cancel()
        self.queues.shares.stop()
        self.turns.stop()
        self.pauses.stop()
        deadline = asyncio.get_running_loop().time() + grace
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        stuck = await self.workers.drain(deadline - min(2.0, grace / 4))
        if stuck:
            _log.warning("handlers did not end in time: their messages will be handled again", count=stuck)
        put = await self.outcomes.drain(deadline - min(1.0, grace / 8))
        await self.gate.close()
        await self.holdings.close()
        await self.reader.stop()
        clean = await self.settler.stop(deadline)
        if not clean:
            _log.warning("not all that was done could be settled: it will be handled again")
        return clean and put and not stuck

    @property
    def trusted_until(self) -> int:
        """Until when (monotonic ns) handlers may start."""
        return self._calls.trusted_until

    def trust(self, until: int) -> None:
        """The lease is trusted until then (ns of `now_ns`); work that had stopped for want of it goes on."""
        self._calls.trusted_until = until
        self.workers.wake()

    def _is_trusted(self) -> bool:
        return now_ns() < self.trusted_until

    def topic_changed(self, project: str, topic: Topic | None) -> None:
        """Act on a topic's new rules at once, for the backlog that is there, too (X4)."""
        self.queues.shares.configure(project)
        known = self.queues.of(project)
        if known and known[0].topic is not None and (topic is None or topic.push != known[0].topic.push):
            self.pauses.end(project)  # another endpoint
        for queue in self.queues.by_priority(project):
            self.queues.apply(queue, topic)
            self._put_to_sleep_or_wake(queue)
        self.workers.wake()

    def _put_to_sleep_or_wake(self, queue: Queue) -> None:
        if queue.asleep:
            self._lay_down(queue)
        else:
            self._at_hand(queue)

    def _lay_down(self, queue: Queue) -> None:
        """Others need the room that its payloads take."""
        queue.lay_down(self.limits)
        self.scheduler.empty(queue, now_ns())
        self.reader.taken()

    def _reclaim(self) -> None:
        """Reads have found no room for a second: those with the most payloads at hand give them up."""
        goal, reclaimed = self.limits.payload_bytes // 2, []
        for queue in sorted(self.queues.all(), key=lambda queue: queue.hand_bytes, reverse=True):
            if self.limits.held <= goal or len(queue.hand) < 2:
                break
            self._lay_down(queue)
            reclaimed.append(queue)
        # (others read first)
        asyncio.get_running_loop().call_later(_RECLAIMED_S, self._all_at_hand, reclaimed)

    def _all_at_hand(self, queues: Iterable[Queue]) -> None:
        for queue in queues:
            self._at_hand(queue)

    def _withhold(self, project: str, reason: str, on: bool, *, for_long: bool = True) -> None:
        """Hand out nothing of a project, or end that."""
        self.queues.withhold(project, reason, on, asleep=on and for_long)
        for queue in self.queues.by_priority(project):
            self._put_to_sleep_or_wake(queue)
        self.workers.wake()

    @property
    def in_flight(self) -> list[Message]:
        """What is with a handler, or about to be."""
        return [*self.workers.running, *self.gate.messages]

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """Those that are open, or being opened."""
        return self.holdings.partitions

    @property
    def backlog(self) -> int:
        """Messages known and waiting, on all partitions, delayed ones included."""
        return sum(queue.backlog for queue in self.queues.all()) + sum(
            len(partition.later.delayed) for partition in self.partitions.values()
        )

    # ---- index

    def _open_queue(self, lane: Lane, subject: bytes, entry: Entry | None) -> Queue | None:
        """The queue of a subject seen for the first time; a message that has none goes to the dead letters, if it is
        given.
        """
        words = [word.decode("utf-8", "replace") for word in subject.split(b".")]
        project, group, band = words[3], names.number(words[4]), self._bands.get(words[5])
        try:
            names.check_project(project)
        except InvalidName as error:
            self._stray(lane, subject, entry, str(error))
            return None
        if band is None:
            known = ", ".join(self.facts.priorities)
            self._stray(lane, subject, entry, f"there is no priority {words[5]!r}: only {known}")
            return None
        if group is None or group >= _GROUPS:
            self._stray(lane, subject, entry, f"{words[4]!r} is no group number")
            return None
        if lane.id.kind == "later" and due_hour(words[6]) is None:
            self._stray(lane, subject, entry, f"{words[6]!r} is no hour")
            return None
        return self.queues.get(lane.id.partition, project, group, band)

    def _stray(self, lane: Lane, subject: bytes, entry: Entry | None, reason: str) -> None:
        if entry is None:
            return  # only its subject was asked about
        text = subject.decode("utf-8", "replace")
        _log.warning("a message belongs to no queue: it goes to the dead letters", subject=text, reason=reason)
        stream = names.stream(self.env, lane.id)
        copy = copies.stray(text, stream, entry.sequence, entry.at, entry.headers, entry.body, self.env, reason)
        self.outcomes.stray(lane, entry.sequence, copy)

    def _at_hand(self, queue: Queue) -> None:
        """A queue whose hand was empty has something to hand out, or to be read."""
        if not self.holdings.is_open(queue.partition):
            return  # should its take-over begin anew, nothing of it must be out
        if queue.hand:
            self.scheduler.ready(queue, now_ns())
            self.workers.wake()
        if not queue.hand or (queue.order is not None and queue.order.next):
            self.reader.want(queue)

    def _came_due(self, queue: Queue) -> None:
        if queue.hand:
            self.reader.want(queue)
        else:
            self._at_hand(queue)

    def _delayed(self) -> None:
        self._later.noted()

    def _look_at_clock(self) -> None:
        self._clock_offset = self.store.now() - now_ns()
        self.turns.forget_void()

    def _wake(self) -> None:
        self.workers.wake()

    def _subject_of(self, queue: Queue) -> str:
        return names.lane_subject(self.env, queue.partition, queue.project, queue.group, queue.priority)

    # ---- schedule

    def _take(self, now: int) -> Message | None:
        """The next message to handle; the lease is looked at before each one."""
        if self._stopping or self.settler.lagging or self.outcomes.crowded or self.gate.failing:
            return None
        if now >= self._calls.trusted_until:
            return None
        while True:
            queue = self.scheduler.next(now)
            if queue is None:
                self._alarm.set(self.scheduler.wake_at(), now)
                return None
            message = self._hand_out(queue, now)
            if message is not None:
                return message
            self._gone += 1
            if self._gone >= _GONE_AT_ONCE:
                self._set_aside(queue, now)

    def _set_aside(self, queue: Queue, now: int) -> None:
        """Much of this turn of the loop went to messages that aren't handled (expired ones, say), which cost their
        tenant nothing: others come first, and this queue again in the next turn.
        """
        if not self._aside:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._aside.append(queue)
        self.scheduler.empty(queue, now)

    def _next_turn(self) -> None:
        self._gone = 0
        aside, self._aside = self._aside, []
        self._all_at_hand(aside)
        self._wake()

    def _late(self, message: Message, by: int) -> None:
        self.scheduler.late(message.queue, by)

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
        lane, mark = entry[0], 0
        if lane.marks.of or lane.dropped or queue.order is not None:
            mark = lane.marks.of.get(entry[1], 0)
            if self._waits(queue, entry, mark, now):
                return None
        if self._expired(entry, queue, now):
            if queue.topic is not None and queue.topic.dead_letter_expired:  # as many as its quota allows
                self.scheduler.done(queue, now, 0)
            else:
                self.scheduler.give_back(queue, now)
            self._expire(queue, entry)
            return None
        message = Message(entry, queue, self.env, self.id, now, mark)
        if mark and message.suspect:
            _log.warning("a process died with this message in flight: it is tried again", message=repr(message))
        return message

    def _waits(self, queue: Queue, entry: Entry, mark: int, now: int) -> bool:
        """Whether a message that was taken may not be handled now, or never; its charge is given back."""
        lane, sequence = entry[0], entry[1]
        place = Place(lane, sequence)
        if sequence in lane.dropped:
            self.scheduler.give_back(queue, now)
            lane.dropped.discard(sequence)
            self.turns.free(queue, place)
            return True
        if self.turns.waits(queue, entry, mark, now):
            if queue.order is not None and queue.order.full:
                queue.lay_down(self.limits)  # until enough of its keys are free: others need the room meanwhile
                self.scheduler.empty(queue, now)
                self.reader.taken()
            self.scheduler.give_back(queue, now)
            return True
        if not self.turns.killed_too_often(queue, entry, mark):
            return False
        self.scheduler.give_back(queue, now)
        self.turns.forgo(place)
        message = Message(entry, queue, self.env, self.id, now, one_less(mark))
        death = Death(f"its process died in attempt {message.attempt}", "")
        _log.warning("a message has killed its process: it goes to the dead letters", message=repr(message))
        self.outcomes.dead(message, death, fall_back=False)
        return True

    def _expire(self, queue: Queue, entry: Entry) -> None:
        self.counters.expired += 1
        queue.failed += 1
        lane, sequence = entry[0], entry[1]
        self.turns.forgo(Place(lane, sequence))
        if queue.topic is not None and queue.topic.dead_letter_expired:
            message = Message(entry, queue, self.env, self.id, now_ns(), lane.marks.of.get(sequence, 0))
            self.outcomes.dead(message, Death("expired", ""))
            return
        self._settle(lane, sequence, lane.generation)
        self.turns.free(queue, Place(lane, sequence))

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
        if message._mark:  # noqa: SLF001
            self.turns.over(message)
        if message._queue.order is not None:  # noqa: SLF001
            self.turns.free(message.queue, Place(lane, entry[1]))

    def _failed(self, message: Message, error: BaseException) -> None:
        self.counters.failed += 1
        message.queue.failed += 1
        if message.given_up:
            self.counters.given_up += 1
        if not message.lane.current(message.sequence, message.generation):
            self.counters.void += 1
            self.turns.over(message)
            return
        decided = self.outcomes.decided(message, error)
        follows = decided.reason if isinstance(decided, Death) else f"again in {decided:.3g} s"
        self._complaints.failed(message, error, described(error), follows)
        if isinstance(decided, Death):
            self.outcomes.dead(message, decided)
        elif message.queue.order is not None and message.key is not None:
            self.turns.try_again(message, decided)
        else:
            self.outcomes.retry(message, decided)
        self.turns.over(message)

    def _returned(self, message: Message) -> None:
        """It wasn't handled, as the lease was over, say: it waits on, should the lease be renewed."""
        lane = message.lane
        if message.generation == lane.generation:
            message.queue.take_back(message.entry, self.limits)
            self._at_hand(message.queue)
        else:
            lane.untouched(message.sequence, message.generation)
        self.turns.returned(message)

    def _paused(self, message: Message, pause: Pause) -> None:
        """Its handler wants no more of this topic for a while."""
        if self.pauses.begin(message.project, max(pause.after, _SHORTEST_PAUSE_S), str(pause)):
            _log.info("a topic pauses", project=message.project, seconds=round(pause.after, 3), reason=str(pause))
        self._returned(message)

    def _pause(self, project: str, after_s: float) -> None:
        """0 s: the pause is over."""
        self._withhold(project, "endpoint", after_s > 0, for_long=after_s > _SHORT_PAUSE_S)

    def _settle(self, lane: Lane, sequence: int, generation: int) -> None:
        if lane.settle(sequence, generation, now_ns()):
            self.settler.note(lane)

    def _ends(self, lane: Lane, sequence: int, generation: int, message: Message | None) -> None:
        """Its copy is safe."""
        self._settle(lane, sequence, generation)
        if message is not None:
            self.turns.free(message.queue, Place(lane, sequence))

    def out(self, lane: Lane) -> set[int]:
        """What of a lane is with a handler, or about to be, or whose copy is on its way."""
        return {*self.gate.of(lane), *self.outcomes.pending_of(lane)}

    def drain(self, queue: Queue) -> list[Place]:
        """All that a queue has indexed, and has no more from now on; none if its partition isn't this node's."""
        lanes = self.holdings.lanes_of(queue.partition)
        if lanes is None:
            return []
        places = queue.drain(*lanes, self.limits)
        self.scheduler.empty(queue, now_ns())
        self.reader.taken()
        return places

    def settle_dropped(self, lane: Lane, sequences: Iterable[int]) -> int:
        """These are dropped on purpose, and waited; what of them is handed out later is passed over. How many."""
        count = 0
        for sequence in sequences:
            self._settle(lane, sequence, lane.generation)
            count += 1
        self.counters.dropped += count
        return count

    def _unread(self, queue: Queue, lane: Lane, sequence: int, generation: int) -> None:
        """A message that is to be read isn't there."""
        if sequence in lane.dropped:
            lane.dropped.discard(sequence)
        else:
            self._missing(lane, sequence, generation)
        self.turns.free(queue, Place(lane, sequence))

    def _missing(self, lane: Lane, sequence: int, generation: int) -> None:
        self.counters.missing += 1
        _log.warning("a message that was indexed is gone from its stream", lane=lane.id, sequence=sequence)
        self._settle(lane, sequence, generation)

    def _hold(self, project: str, on: bool) -> None:
        """Its copies are refused: hand out no more of it meanwhile."""
        self._withhold(project, "paused", on)

    def _hold_ordered(self, project: str, on: bool) -> None:
        """Too many of its messages wait for their next attempts."""
        self._withhold(project, "ordered", on)

    def _hung(self, threads: int) -> None:
        if threads > self._concurrency // 4:
            self._on_stop(
                f"{threads} of {self._concurrency} handler threads hang: give the handler time limits of its own"
            )

    # ---- ownership and identity

    def _fenced(self, lane: Lane, reason: str) -> None:
        self._on_fenced(f"nothing more is settled of {lane.id.kind} {lane.id.partition}: {reason}")
