"""What happens in `rebalance` on real servers: a node joins, a node leaves, a node is killed."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.scenarios.arrivals import SECOND
from evenlane.engine.proof.scenarios.cluster import ENV, PATIENCE_S, cluster
from evenlane.engine.proof.scenarios.cluster_records import HELD
from evenlane.engine.proof.scenarios.putter import Putter
from evenlane.engine.proof.scenarios.rebalance_load import PACED, Projects, shared_out
from evenlane.ring.placement.placement import place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from evenlane.engine.proof.scenarios.cluster import Cluster
    from evenlane.engine.proof.scenarios.cluster_history import Reign
    from evenlane.engine.proof.scenarios.cluster_node import CaughtUp
    from evenlane.engine.proof.scenarios.cluster_records import Record
    from evenlane.engine.proof.scenarios.load import Load
    from evenlane.engine.proof.scenarios.rebalance_load import Size
    from evenlane.engine.proof.scenarios.scenario import Tell

STAY = ("node-a", "node-b", "node-c")
COMES = "node-d"
_STEADY_S = 1.5  # of load before anything happens, and after it
_LEAD_NS = 100_000_000  # from the moment all are ready to the load's first instant
_HIGH = 0  # the band of held messages: they are next
_HELD_FROM = 1 << 40  # their ids are nobody else's
_LOOK_S = 0.1
_TOLD_BEYOND = 6_000  # messages of a partition whose node is sure to log that they are all fed again


class Span(NamedTuple):
    """Something that happened, from its cause at `start` to its end, ns since boot. `before` and `after` are the plans.

    `calm`: since when nothing had happened before it; `settled`: when all of it was over. `seconds`: of a leave, from
    SIGTERM to the process's end.
    """

    start: int
    end: int
    before: dict[int, str]
    after: dict[int, str]
    generations: int
    calm: int = 0
    settled: int = 0
    seconds: float = 0.0


class Outcome(NamedTuple):
    """`planned`: when each generation was heard of, `leaderless`: when a leader's key went. `deep` is the partition
    with the held messages and most of what waits. `offset` is what has to be added to unix ns to get ns since boot;
    `paced` how many paced messages the store took; `fill_s` how long it took to put the backlog.
    """

    join: Span
    leave: Span
    kill: Span
    victim: str
    records: list[Record]
    reigns: list[Reign]
    planned: list[int]
    leaderless: list[int]
    deep: int
    caught_up: list[CaughtUp]
    offset: int
    paced: int
    fill_s: float


async def happened(url: str, size: Size, seed: int, tell: Tell) -> Outcome:
    """Raises EvenlaneError, CoordinationError."""
    projects = Projects(size)
    tell("rebalance: servers and topics", 0.0)
    async with cluster(url, projects) as made:
        return await _Run(made, projects, seed, tell).outcome()


class _Run:
    def __init__(self, made: Cluster, projects: Projects, seed: int, tell: Tell) -> None:
        self._cluster, self._projects, self._size = made, projects, projects.size
        self._history, self._seed = made.history, seed
        self._tell = tell
        self._held = self._waiting = 0  # messages put

    async def outcome(self) -> Outcome:
        self._tell("rebalance: three nodes", 0.05)
        await self._cluster.start(*STAY)
        deep = self._will_move()
        counts = dict.fromkeys(deep, self._size.beside) | {deep[0]: self._size.waiting}
        await self._put(self._projects.waiting(self._projects.deep, counts))
        async with self._steady(0) as calm:
            join = (await self._join(deep[0]))._replace(calm=calm)
            leave = (await self._leave(deep[0]))._replace(calm=join.settled)
        victim, began = self._history.leader, now_ns()
        full = await self._fill(victim)
        fill_s = (now_ns() - began) / SECOND
        async with self._steady(1) as calm:
            large = {number for number, count in full.items() if count > _TOLD_BEYOND}
            kill = (await self._kill(victim, large))._replace(calm=calm)
        paced = await self._drained()
        records, offset = self._cluster.ledger.records, now_ns() - time_ns()
        told = self._history
        return Outcome(
            join,
            leave,
            kill,
            victim,
            records,
            told.reigns,
            told.planned,
            told.leaderless,
            deep[0],
            self._caught_up(),
            offset,
            paced,
            fill_s,
        )

    # ---- what is put

    def _will_move(self) -> list[int]:
        """Partitions that the placement will give to the node that joins."""
        after = place([*STAY, COMES], self._projects.loads(), self._history.plan)
        return [partition for partition, owner in enumerate(after) if owner == COMES]

    async def _put(self, loads: Iterable[Load]) -> None:
        for load in loads:
            self._waiting += len(load)
            async with Putter(self._cluster.url, ENV, load) as putter:
                await putter.put(now_ns())

    @asynccontextmanager
    async def _steady(self, turn: int) -> AsyncIterator[int]:
        """The paced load before, while and after the block does its work; since when it has been there (ns)."""
        load = self._projects.steady(self._seed, self._size.most_s, turn)
        async with Putter(self._cluster.url, ENV, load) as putter, putter.putting(now_ns() + _LEAD_NS):
            began = now_ns()
            await asyncio.sleep(_STEADY_S)
            yield began
            await asyncio.sleep(_STEADY_S)

    async def _hold(self, partition: int) -> None:
        """A message whose handler runs for seconds; it has begun when this returns."""
        self._held += 1
        project, body = self._projects.deep[partition].name, b"%s %g" % (HELD, self._size.held_s)
        await self._cluster.puts.put(project, 0, _HIGH, _HELD_FROM + self._held, body)
        await self._cluster.seen(lambda record: record.held and record.began, "the held message to begin")

    async def _fill(self, victim: str) -> dict[int, int]:
        """Messages that wait on in the partitions of the node that will be killed: how many in each."""
        self._tell("rebalance: a backlog", 0.35)
        own = sorted(partition for partition, owner in self._history.owners.items() if owner == victim)
        size = self._size
        if size.each is None:
            counts = shared_out(size.backlog, size.full, own)
        else:
            counts = dict.fromkeys(own, size.each) if size.each else {}
        await self._put(self._projects.waiting(self._projects.full, counts))
        return counts

    # ---- what happens

    async def _join(self, deep: int) -> Span:
        """Until the handler that ran meanwhile has ended."""
        self._tell("rebalance: a node joins", 0.15)
        span = self._now()
        await self._cluster.spawn(COMES)
        await self._history.until(lambda: COMES in self._history.nodes, PATIENCE_S, f"{COMES} to come")
        await self._hold(deep)
        await self._cluster.carried_out(*STAY, COMES)
        span = self._since(span)
        await self._cluster.seen(lambda record: record.held and not record.began, "the held message to end")
        return span._replace(settled=now_ns())

    async def _leave(self, deep: int) -> Span:
        """After a calm, with a handler under way, which the process waits for."""
        await asyncio.sleep(_STEADY_S)
        self._tell("rebalance: a node leaves", 0.25)
        await self._hold(deep)
        span = self._now()
        left = asyncio.create_task(self._cluster.nodes[COMES].leave())
        await self._history.until(
            lambda: set(self._history.plan.values()) == set(STAY), PATIENCE_S, "a plan without it"
        )
        await self._history.until(lambda: self._history.plan == self._history.owners, PATIENCE_S, "all to be taken")
        span = self._since(span)
        await left
        span = span._replace(seconds=(now_ns() - span.start) / SECOND)
        await self._cluster.carried_out(*STAY)
        return span

    async def _kill(self, victim: str, full: set[int]) -> Span:
        """Until all that it had is fed again."""
        self._tell("rebalance: a node is killed", 0.65)
        span = self._now()
        await self._cluster.nodes[victim].kill()
        await self._cluster.carried_out(*(name for name in STAY if name != victim))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not full <= self._fed_since(span.start):  # noqa: ASYNC110 - a log tells nobody
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise EvenlaneError(f"the scenario broke off: the backlog isn't fed again after {PATIENCE_S:g} s") from None
        return self._since(span)

    def _now(self) -> Span:
        plan = self._history.plan
        return Span(now_ns(), 0, plan, plan, self._history.generation)

    def _since(self, span: Span) -> Span:
        generations = self._history.generation - span.generations
        return span._replace(end=now_ns(), after=self._history.plan, generations=generations)

    def _fed_since(self, start: int) -> set[int]:
        return {told.partition for told in self._caught_up() if told.at > start}

    def _caught_up(self) -> list[CaughtUp]:
        return [told for node in self._cluster.nodes.values() for told in node.caught_up()]

    async def _drained(self) -> int:
        """Wait until each paced message has been handled; those that never are show in the figures. How many there are,
        by what the store took.
        """
        self._tell("rebalance: the rest", 0.9)
        paced = await self._cluster.stored() - self._waiting - self._held
        ledger, seen = self._cluster.ledger, 0
        handled: set[tuple[int, str, int]] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while len(handled) < paced:
                    ledger.read()
                    fresh = ledger.records[seen:]
                    seen += len(fresh)
                    handled |= {each.message for each in fresh if not each.began and each.project.startswith(PACED)}
                    await asyncio.sleep(_LOOK_S)
        return paced
