"""One turn of an arm: a node, a producer, the turn's load, and what became of each of its messages."""

from __future__ import annotations

import asyncio
from bisect import insort
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.node import Node
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.proof.demo.ledger import Ledger, dead_letters, waiting
from evenlane.engine.proof.demo.plan import FACTS, HOT, SERVICE_S, SLOTS, scheduler
from evenlane.engine.proof.demo.streams import stores
from evenlane.engine.proof.scenarios.figures import percentile, worst_window
from evenlane.engine.proof.scenarios.trace import NEVER, Trace

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncIterator

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Store
    from evenlane.engine.producer.put import Outcome
    from evenlane.engine.proof.demo.plan import Arm
    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.load import Load
    from evenlane.quota.topics.topic import Topic

_LEAD_NS = 100_000_000  # from the moment the node serves to the load's first instant
_GRACE_S = 5.0
_IN_A_ROW = 64  # puts that are late, before the event loop gets its turn
_SECOND = 1e9
_MILLISECOND = 1e6


class Turn:
    """Dwell is the time from put to the handler's end; in time is what ended before the turn did."""

    def __init__(self, arm: Arm, load: Load) -> None:
        self.arm, self.load = arm, load
        self.ledger = Ledger()
        self._trace = Trace(load)
        self._hot = next(number for number, each in enumerate(load.tenants) if each.name == HOT)
        self._origin = 0
        self._acknowledged = bytearray(len(load))
        self._dwell_ms: list[float] = []  # of the victims that were handled in time, sorted
        self._again = 0  # handled once more
        self._put = [0, 0]  # victims, hot
        self._handled = [0, 0]
        self._broken: Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, settings: Settings, book: TopicCache) -> None:
        """Raises EvenlaneError if a put or the node failed."""
        async with stores(settings, FACTS.partitions) as both, dead_letters(settings) as dead:
            producer = Producer(settings=settings, store=both.producer, topics=book, facts=FACTS)
            async with producer, self._serving(both.node, settings.env, book):
                await self._through(producer)
            self._close(await dead.numbers(), await waiting(both.producer, FACTS.partitions))

    @asynccontextmanager
    async def _serving(self, store: Store, env: str, book: TopicCache) -> AsyncIterator[None]:
        """A node that owns all partitions, and is stopped with what it hasn't handled."""

        def topic_of(project: str) -> Topic | None:
            found = book.get(project)
            return found.topic if found is not None else None

        node = Node(
            store, FACTS, Handler.of(self._handle), topic_of,
            env=env, concurrency=SLOTS, scheduler=scheduler(self.arm), on_stop=self._fail,
        )  # fmt: skip
        await node.start()
        try:
            await node.take_over(range(FACTS.partitions), 1)
            yield
        finally:
            await node.stop(_GRACE_S)

    @property
    def elapsed_s(self) -> float:
        """Of the turn's time."""
        return min(self.load.until, max(0, self._now())) / _SECOND if self._origin else 0.0

    def figures(self) -> Figures:
        """As it stands: times in ms, everything else in messages."""
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
        hot = (number for number, tenant in enumerate(self.load.tenant) if tenant == self._hot)
        return worst_window(self._trace, hot)

    # ---- load and handler

    async def _handle(self, message: Message) -> None:
        number, trace = int(message.body), self._trace
        if trace.started[number] == NEVER:
            trace.started[number] = self._now()
        await asyncio.sleep(SERVICE_S)
        if trace.ended[number] != NEVER:
            self._again += 1
            return
        trace.ended[number] = self._now()
        hot = self.load.tenant[number] == self._hot
        self._handled[hot] += 1
        if not hot and trace.handled(number):
            insort(self._dwell_ms, (trace.ended[number] - trace.put[number]) / _MILLISECOND)

    async def _through(self, producer: Producer) -> None:
        self._origin = now_ns() + _LEAD_NS
        working = asyncio.create_task(self._work(producer))
        try:
            await asyncio.wait({working, self._broken}, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            await working
        finally:
            working.cancel()
            self._broken.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _work(self, producer: Producer) -> None:
        await producer.put_each(self._puts(), self._answered)
        await asyncio.sleep((self.load.until - self._now()) / _SECOND)

    async def _puts(self) -> AsyncIterator[Put]:
        load, put = self.load, self._trace.put
        names = [each.name for each in load.tenants]
        for number, at in enumerate(load.at):
            if (early := at - self._now()) > 0:
                await asyncio.sleep(early / _SECOND)
            elif number % _IN_A_ROW == 0:
                await asyncio.sleep(0)
            tenant = load.tenant[number]
            self._put[tenant == self._hot] += 1
            put[number] = self._now()
            yield Put(names[tenant], b"%d" % number, id=str(number))

    def _answered(self, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            self._fail(f"a put failed: {outcome}")
        else:
            self._acknowledged[number] = 1

    def _fail(self, reason: str) -> None:
        if not self._broken.done():
            self._broken.set_exception(EvenlaneError(f"the demo broke off: {reason}"))

    def _now(self) -> int:
        """On the load's clock, ns."""
        return now_ns() - self._origin

    # ---- ledger

    def _close(self, dead: set[int], left: set[int]) -> None:
        put = {number for number, known in enumerate(self._acknowledged) if known}
        handled = {number for number, ended in enumerate(self._trace.ended) if ended != NEVER}
        self.ledger = Ledger.of(put, handled, dead, left, self._again)
