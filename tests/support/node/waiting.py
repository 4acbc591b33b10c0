"""A node in virtual time whose decisions are compared with its wait reasons."""

import asyncio

from evenlane.engine.core.message.handler_exceptions import Pause, Reject, Retry
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.tuning import NodeTuning
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.node.gated import NOW
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, change, topic, turns
from tests.support.scheduler.delegating import DelegatingScheduler

SLOTS = 3
OUTCOMES = {
    "success": lambda: None,
    "failure": lambda: ValueError("no good"),
    "reject": lambda: Reject("not wanted"),
    "retry": lambda: Retry(2.0),
    "short pause": lambda: Pause(0.5),
    "long pause": lambda: Pause(5.0),
}

_TUNING = NodeTuning(tail_beyond=12, backlog_wait_s=30.0)
_TICK_S = 0.001  # by which timers may be late
_MOST_TICKS = 5
_PACING_S = 0.02  # between two openings of partitions
_MOST_TURNS = 100  # of the loop, until a partition is served


class AskingScheduler(DelegatingScheduler):
    """Asks for the wait reason of each queue that it grants, before the grant is charged. `contradictions` has the
    grants of queues with a reason.
    """

    def __init__(self):
        super().__init__(SLOTS, CLUSTER_CONFIG.max_group_qps)
        self.reason = lambda _queue: None
        self.contradictions = []

    def next(self, now):
        grant = self.inner.next(now)
        if grant is not None and (reason := self.reason(grant.queue)) is not None:
            self.contradictions.append((_named(grant.queue), reason))
        return grant


class WaitWorld(World):
    """One node with few slots, whose handlers run until the test ends them. `now` is the node's clock, monotonic ns.
    `opening` has a task per partition that the node owns, or is taking over.
    """

    def __init__(self, now, **topics):
        super().__init__(**topics)
        self.now = now
        self.server = MemoryServer(clock=lambda: NOW + now())
        self.store = MemoryStore(self.server, "online")
        self.running: list[asyncio.Future[str]] = []
        self.opening: dict[int, asyncio.Task[None]] = {}

    async def begin(self, **limits):
        await self.__aenter__()
        scheduler = AskingScheduler()
        self.owner = await self.idle_node(
            self._handle, concurrency=SLOTS, scheduler=scheduler, limits=MemoryBudget(**limits), tuning=_TUNING
        )
        scheduler.reason = self.owner.wait_rules.reason
        self.contradictions = scheduler.contradictions
        for number in range(CLUSTER_CONFIG.partitions):
            await self._take(number)

    async def end(self):
        await self.reconnect()
        for opening in self.opening.values():
            opening.cancel()
        await asyncio.gather(*self.opening.values(), return_exceptions=True)
        await self.end_handlers()
        await self.__aexit__()

    # ---- messages

    async def put_messages(self, count, key=None, delay_s=0, **options):
        headers = {h.KEY: key} if key is not None else {}
        due = self.store.now() + int(delay_s * SECOND) if delay_s else None
        for _ in range(count):
            await self.put(headers=headers, due=due, **options)

    async def _handle(self, _message):
        end = asyncio.get_running_loop().create_future()
        self.running.append(end)
        try:
            error = OUTCOMES[await end]()
        finally:
            self.running.remove(end)
        if error is not None:
            raise error

    async def end_handler(self, pick, outcome):
        self.running[pick % len(self.running)].set_result(outcome)

    async def end_handlers(self, times=1):
        """End all handlers, then those that have started since, and so on."""
        for _ in range(times):
            for end in self.running:
                end.set_result("success")
            await asyncio.sleep(_TICK_S)

    # ---- rules

    async def set_topic(self, project, rules):
        """None deletes the topic."""
        if rules is not None:
            change(self, self.owner, rules, project)
        elif self.topics.pop(project, None) is not None:
            self.owner.on_topic_change(project, None)

    @property
    def is_trusted(self):
        return self.now() < self.owner.trusted_until

    async def trust_for(self, seconds):
        self.owner.trust(self.now() + int(seconds * SECOND))

    @property
    def is_connected(self):
        return self.owner.store.is_connected

    async def disconnect(self):
        self.server.disconnect(self.owner.store)

    async def reconnect(self):
        self.server.reconnect(self.owner.store)

    async def pass_time(self, seconds, heals, projects):
        """`heals`: the connection and the lease are back then, and the topics of these projects are active."""
        await asyncio.sleep(seconds)
        if not heals:
            return
        await self.reconnect()
        if not self.is_trusted:
            await self.trust_for(1e6)
        for project in projects:
            if not self._is_active(project):
                await self.set_topic(project, topic(groups=2))

    def _is_active(self, project):
        rules = self.topics.get(project)
        return rules is not None and rules.state == "active"

    # ---- partitions

    async def release(self, number):
        """Hand a partition off, once its handlers have ended."""
        if number not in self.opening or not self.opening[number].done():
            return
        await self.opening.pop(number)
        await self.end_handlers()
        epoch = self.owner.partitions[number].lane.epoch
        self.owner.owned.stop_partition(number)
        await self.owner.owned.hand_off(number, epoch)

    async def take_over(self, number, project, count, cut_after):
        """Take a partition over, to which `count` messages per priority came while it had no owner. `cut_after`: the
        connection is lost that many turns of the loop after the node serves the partition; None: it isn't.
        """
        await self.release(number)
        group = self.group_in(number, project)
        for priority in reversed(CLUSTER_CONFIG.priorities):
            await self.put_messages(count, project=project, group=group, priority=priority)
        await asyncio.sleep(_PACING_S)
        taking = asyncio.create_task(self._take(number))
        if cut_after is not None:
            await self._served(number)
            await turns(cut_after)
            await self.disconnect()
        await taking

    async def _take(self, number):
        if number not in self.opening:
            self.opening[number] = asyncio.create_task(self.owner.owned.open(number, self.next_epoch()))
            await asyncio.sleep(_TICK_S)

    async def _served(self, number):
        for _ in range(_MOST_TURNS):
            if self.owner.lanes.is_served(number):
                return
            await asyncio.sleep(0)

    # ---- checks

    async def check(self):
        """Decisions and reasons agree: nothing started in spite of a reason, and whatever waits has one."""
        await self._nothing_is_free()
        assert [] == self.contradictions, f"granted in spite of a reason: {self.contradictions}"
        for queue in self._waiting():
            reason, certain = self._reason(queue), self._certain_reason(queue)
            assert certain in {None, reason}, f"{_named(queue)} waits for {certain}, not for {reason}"

    async def _nothing_is_free(self):
        """Each queue with a backlog has a reason to wait, at the latest after some ticks."""
        for _ in range(_MOST_TICKS):
            await asyncio.sleep(_TICK_S)
            free = [queue for queue in self._waiting() if self._reason(queue) is None and not self._is_read(queue)]
            if not free or self._is_held_up():
                return
        raise AssertionError(f"nothing keeps {sorted(map(_named, free))} from starting")

    def _waiting(self):
        return [queue for queue in self.owner.queues.all() if queue.backlog]

    def _reason(self, queue):
        return self.owner.wait_rules.reason(queue)

    def _is_read(self, queue):
        """Whether the head is being read from the store."""
        return not queue.ready and (queue.loading or self.owner.partitions[queue.partition].lane.is_catching_up)

    def _is_held_up(self):
        """Whether the whole node starts nothing, for which `why` has a note."""
        return self.now() >= self.owner.settler.late_at or self.owner.failures.crowded

    def _certain_reason(self, queue):
        """The reason that the events so far determine; None: any."""
        if self.owner.pauses.reason(queue.project) is not None:
            return "endpoint"
        if not self._is_active(queue.project):
            return "paused"
        return None if self.is_trusted else "no_owner"


def _named(queue):
    return f"{queue.project}/{queue.group}/{queue.priority}"
