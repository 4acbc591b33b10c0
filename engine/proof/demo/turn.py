"""One turn of an arm: a node, a producer, the turn's load, and the fate of each of its messages."""

from __future__ import annotations

import asyncio
from bisect import insort
from typing import TYPE_CHECKING

from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.proof.broker.environment import environment, open_store
from evenlane.engine.proof.demo.ledger import Ledger, dead_letters, find_waiting
from evenlane.engine.proof.demo.plan import CLUSTER_CONFIG, HOT, SLOTS, scheduler
from evenlane.engine.proof.figures import percentile, worst_window
from evenlane.engine.proof.load.trace import NEVER
from evenlane.engine.proof.runners.one_node import Run

if TYPE_CHECKING:
    from array import array
    from collections.abc import AsyncIterator

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.producer.put import Outcome
    from evenlane.engine.proof.demo.plan import Arm
    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.load.load import Load
    from evenlane.quota.topics.topic import Topic

_IN_A_ROW = 64  # late puts before the event loop gets its turn
_SECOND = 1e9
_MILLISECOND = 1e6


class Turn(Run):
    """One turn. Dwell is the time from the put to the handler's end. Messages that ended before the turn did are in
    time.
    """

    broke_off = "the demo was aborted"

    def __init__(self, arm: Arm, load: Load) -> None:
        super().__init__(load, lambda _share: None)
        self.arm, self.ledger = arm, Ledger()
        self._hot = next(number for number, each in enumerate(load.tenants) if each.name == HOT)
        self._acknowledged = bytearray(len(load))
        self._dwell_ms: list[float] = []  # dwell of the victims' messages that were handled in time, sorted
        self._put = [0, 0]  # victims, hot
        self._handled = [0, 0]

    async def run(self, settings: Settings, cache: TopicCache) -> None:
        """Raises EvenlaneError if a put or the node failed."""

        def topic_of(project: str) -> Topic | None:
            found = cache.get(project)
            return found.topic if found is not None else None

        url, env, own = settings.nats[0], settings.env, scheduler(self.arm)
        async with (
            environment(url, env, CLUSTER_CONFIG, topic_of) as made,
            open_store(url, env) as store,
            dead_letters(url, env) as dead,
        ):
            producer = Producer(settings=settings, store=store, topics=cache, facts=CLUSTER_CONFIG)
            limits = MemoryBudget()
            async with producer, made.serve(self.handle, own, slots=SLOTS, limits=limits, on_stop=self.fail):
                await self.through(lambda _origin: self._put_all(producer))
            self._close(await dead.numbers(), await find_waiting(store, CLUSTER_CONFIG.partitions))

    @property
    def elapsed_s(self) -> float:
        """The elapsed part of the turn's time, in s."""
        return min(self.load.until, max(0, self.now())) / _SECOND if self.origin else 0.0

    def figures(self) -> Figures:
        """So far: times in ms, everything else in messages."""
        dwell = self._dwell_ms
        return {
            "p50_ms": percentile(dwell, 0.5),
            "p99_ms": percentile(dwell, 0.99),
            "offered": self._put[0],
            "in_time": len(dwell),
            "hot_offered": self._put[1],
            "hot_served": self._handled[1],
        }

    def hot_max_1s(self) -> int:
        """The most hot messages that began in any second."""
        return worst_window(self.trace, self.load.numbers(tenants=[HOT]))

    # ---- load and handler

    def on_handled(self, number: int) -> None:
        hot, trace = self.load.tenant[number] == self._hot, self.trace
        self._handled[hot] += 1
        if not hot and trace.was_handled(number):
            insort(self._dwell_ms, (trace.ended[number] - trace.put[number]) / _MILLISECOND)

    async def _put_all(self, producer: Producer) -> array[int]:
        await producer.put_each(self._puts(), self._on_outcome)
        return self.trace.put

    async def _puts(self) -> AsyncIterator[Put]:
        load, put = self.load, self.trace.put
        for number, at in enumerate(load.at):
            if (early := at - self.now()) > 0:
                await asyncio.sleep(early / _SECOND)
            elif number % _IN_A_ROW == 0:
                await asyncio.sleep(0)
            tenant = load.tenant[number]
            self._put[tenant == self._hot] += 1
            put[number] = self.now()
            yield Put(load.tenants[tenant].name, b"%d" % number, id=str(number))

    def _on_outcome(self, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            self.fail(f"a put failed: {outcome}")
        else:
            self._acknowledged[number] = 1

    # ---- ledger

    def _close(self, dead: set[int], left: set[int]) -> None:
        put = {number for number, known in enumerate(self._acknowledged) if known}
        handled = {number for number, ended in enumerate(self.trace.ended) if ended != NEVER}
        self.ledger = Ledger.of(put, handled, dead, left, self.again)
