"""`rebalance` on real servers: a node joins, a node leaves, a node is killed, and what the messages notice of it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple

from engine.clock import now_ns
from engine.scenarios import rebalance_figures as figures
from engine.scenarios.arrivals import SECOND
from engine.scenarios.putter import Putter
from engine.scenarios.rebalance_cluster import ENV, PATIENCE_S, Cluster, cluster
from engine.scenarios.rebalance_load import DEEP, PACED, Projects, Size, shared_out
from engine.scenarios.rebalance_records import HELD
from ring.placement import place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from engine.scenarios.figures import Figures
    from engine.scenarios.load import Load
    from engine.scenarios.rebalance_records import Record
    from engine.scenarios.scenario import Tell

_STAY = ("node-a", "node-b", "node-c")
_COMES = "node-d"
_LEAD_NS = 100_000_000  # from the moment all are ready to the load's first instant
_STEADY_S = 1.5  # before anything happens, and after it
_HIGH = 0  # the band of the held messages: they are next
_MARGIN_NS = SECOND // 2  # messages put so long before a plan may still wait when it is carried out
_DRAIN_S = 30.0
_LOOK_S = 0.1


class Span(NamedTuple):
    """What changed between two instants, ns since boot; `plans` are those before and after it."""

    start: int
    end: int
    before: dict[int, str]
    after: dict[int, str]
    generations: int


async def run(url: str, size: Size, seed: int, tell: Tell) -> dict[str, Figures]:
    """The figures of `join`, `leave` and `kill -9`. Raises EvenlaneError."""
    projects = Projects(size)
    tell("rebalance: topics", 0.0)
    async with cluster(url, projects) as made:
        return await _Run(made, projects, seed, tell).arms()


class _Run:
    def __init__(self, made: Cluster, projects: Projects, seed: int, tell: Tell) -> None:
        self._cluster, self._projects, self._size = made, projects, projects.size
        self._seed, self._tell = seed, tell
        self._history = made.history
        self._held = 0  # how many held messages were put
        self._paced = 0  # how many messages the steady loads have
        self._offset = now_ns() - time_ns()

    async def arms(self) -> dict[str, Figures]:
        load_average = os.getloadavg()[0]
        self._tell("rebalance: three nodes", 0.05)
        await self._cluster.start(*_STAY)
        deep = self._will_move()
        await self._put(self._projects.waiting(self._projects.deep, self._deep_counts(deep)))
        async with self._steady(self._size.graceful_s, 0):
            joined = await self._join(deep[0])
            left, took_s = await self._leave(deep[0])
        victim = self._history.leader
        full = await self._fill(victim)
        async with self._steady(self._size.crash_s, 1):
            killed, died = await self._kill(victim, len(full))
        await self._drained()
        return self._figures(joined, left, killed, took_s, victim, died) | {
            "all": {"load_average_before": load_average, "backlog": sum(full.values()), **self._of_all()}
        }

    # ---- what is put

    def _will_move(self) -> list[int]:
        """Partitions that the placement will give to the node that joins."""
        plan = self._history.plan
        after = place([*_STAY, _COMES], self._projects.loads(), plan)
        return [partition for partition, owner in enumerate(after) if owner == _COMES]

    def _deep_counts(self, deep: list[int]) -> dict[int, int]:
        return dict.fromkeys(deep, self._size.beside) | {deep[0]: self._size.waiting}

    async def _put(self, load: Load) -> None:
        async with Putter(self._cluster_url, ENV, load) as putter:
            await putter.put(now_ns())

    @property
    def _cluster_url(self) -> str:
        return self._cluster.url

    @asynccontextmanager
    async def _steady(self, seconds: float, turn: int) -> AsyncIterator[None]:
        """The paced load; leaving the block waits for its end."""
        load = self._projects.steady(self._seed, seconds, turn)
        self._paced += len(load)
        async with Putter(self._cluster_url, ENV, load) as putter:
            put = asyncio.create_task(putter.put(now_ns() + _LEAD_NS))
            try:
                await asyncio.sleep(_STEADY_S)
                yield
                await put
            finally:
                put.cancel()

    async def _hold(self, partition: int) -> None:
        """Put a message whose handler runs for seconds."""
        self._held += 1
        project = self._projects.deep[partition].name
        await self._cluster.puts.put(project, 0, _HIGH, (1 << 40) + self._held, HELD)

    async def _fill(self, victim: str) -> dict[int, int]:
        """Messages that wait on in the partitions of the node that will be killed: how many in each."""
        self._tell("rebalance: a backlog", 0.35)
        own = sorted(partition for partition, owner in self._history.owners.items() if owner == victim)
        counts = shared_out(self._size.backlog, self._size.full, own)
        await self._put(self._projects.waiting(self._projects.full, counts))
        return counts

    # ---- what happens

    async def _join(self, deep: int) -> Span:
        self._tell("rebalance: a node joins", 0.15)
        span = self._begin()
        await self._cluster.spawn(_COMES)
        await self._history.until(lambda: _COMES in self._history.nodes, PATIENCE_S, f"{_COMES} to come")
        await self._hold(deep)
        await self._cluster.carried_out(*_STAY, _COMES)
        ended = await self._cluster.seen(lambda record: record.held and not record.began)
        assert ended, "the held message's handler ends"
        return self._end(span)

    async def _leave(self, deep: int) -> tuple[Span, float]:
        """With a handler under way that runs for seconds; also how long it took until the process had ended."""
        self._tell("rebalance: a node leaves", 0.25)
        await self._hold(deep)
        await self._cluster.seen(lambda record: record.held and record.began)
        span = self._begin()
        node = self._cluster.nodes[_COMES]
        node.send(signal.SIGTERM)
        await self._cluster_left()
        await node.ended()
        took_s = (now_ns() - span.start) / SECOND
        await asyncio.sleep(_STEADY_S)
        return self._end(span), took_s

    async def _cluster_left(self) -> None:
        await self._cluster.carried_out(*_STAY)

    async def _kill(self, victim: str, full: int) -> tuple[Span, int]:
        """Until all that it had is fed again; also when it died."""
        self._tell("rebalance: a node is killed", 0.65)
        span = self._begin()
        node = self._cluster.nodes[victim]
        node.send(signal.SIGKILL)
        died = now_ns()
        await node.ended()
        rest = [name for name in _STAY if name != victim]
        await self._cluster.carried_out(*rest)
        async with asyncio.timeout(PATIENCE_S):
            while len(self._caught_up(span.start)) < full:  # noqa: ASYNC110 - a log tells nobody
                await asyncio.sleep(_LOOK_S)
        return self._end(span), died
