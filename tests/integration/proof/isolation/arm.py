"""An arm: a whole node on real servers, in an environment of its own, and what a load of it shows."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from statistics import median
from time import monotonic

from evenlane import Producer, Put
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.core.ports import Receipt
from tests.support.node.running import running_engine
from tests.support.topics import put_specs

CAPPED, GREEDY = "capped", "greedy"  # one floods above its small quota, the other has a quota above the node's capacity
FLOODS = (CAPPED, GREEDY)
VICTIMS = tuple(f"victim-{number}" for number in range(5))
_QPS, _BURST = 1, 2
_SPECS = {
    CAPPED: f'{{"qps": {_QPS}, "burst": {_BURST}}}',
    **dict.fromkeys((GREEDY, *VICTIMS), '{"qps": 500}'),
}
SLOTS = 4
_SERVICE_S = 0.01


class Rounds:
    """The time of all arms. A handler runs until the end of the round in which it starts, so an arm starts at most
    `SLOTS` messages in a round, however slow the machine is.
    """

    def __init__(self):
        self._over, self._is_open = asyncio.Event(), True

    async def wait(self):
        await self._over.wait()

    async def end(self):
        """Give the nodes time to start messages, and let these end."""
        await asyncio.sleep(_SERVICE_S)
        self._over.set()
        if self._is_open:
            self._over = asyncio.Event()

    def close(self):
        """Let all handlers end at once from now on."""
        self._is_open = False
        self._over.set()


@dataclass(frozen=True)
class Figures:
    """What an arm shows of isolation. `passed_by` and `wait_s` are medians over the victims' messages: how many
    messages of the floods started between put and start, and how long that took. `served` is the share of them that had
    started by the end of the load. `above_quota` is the number of starts of `CAPPED` beyond its quota; at most 0 is
    right.
    """

    passed_by: float
    wait_s: float
    served: float
    above_quota: float


class Arm:
    """A node with an own scheduler, or with the product's (None)."""

    def __init__(self, settings, scheduler, rounds):
        self._settings, self._rounds = replace(settings, partitions=2, concurrency=SLOTS), rounds
        self._scheduler = {} if scheduler is None else {"scheduler": scheduler}
        self._started = Counter()  # messages of each project
        self._put = []  # for each victim's message, the starts of the floods before it was put, and the time
        self._waits = {}  # its number -> the starts of the floods since then, and the wait (s)
        self._served = 0.0
        self._began = 0.0
        self._producer = None

    @asynccontextmanager
    async def serving(self):
        """The node serves as long as a block runs."""
        etcd = connections.etcd(self._settings)
        config = await agree_cluster_config(etcd, self._settings.env, {"partitions": self._settings.partitions})
        await put_specs(etcd, self._settings.env, config, _SPECS)
        await etcd.close()
        async with Producer(settings=self._settings) as self._producer:
            self._began = monotonic()
            async with running_engine(self._settings, self._handle, **self._scheduler):
                yield self

    async def _handle(self, message):
        if message.project in VICTIMS:
            before, at = self._put[int(message.id)]
            self._waits.setdefault(message.id, (self._floods - before, monotonic() - at))
        self._started[message.project] += 1
        await self._rounds.wait()

    async def put(self, flood, victims=()):
        """Put this number of messages of each flood, and behind them one of each of these victims."""
        puts = [Put(project, b"") for project in FLOODS for _ in range(flood)]
        for victim in victims:
            puts.append(Put(victim, b"", id=str(len(self._put))))
            self._put.append((self._floods, monotonic()))
        outcomes = await self._producer.put_many(puts)
        assert all(isinstance(outcome, Receipt) for outcome in outcomes), outcomes

    @property
    def _floods(self):
        return sum(self._started[project] for project in FLOODS)

    @property
    def has_served_all(self):
        return len(self._waits) == len(self._put)

    def end_load(self):
        self._served = len(self._waits) / len(self._put)

    @property
    def figures(self):
        allowed = _QPS * (monotonic() - self._began) + _BURST + 1
        passed_by, waits_s = zip(*self._waits.values(), strict=True)
        return Figures(median(passed_by), median(waits_s), self._served, self._started[CAPPED] - allowed)
