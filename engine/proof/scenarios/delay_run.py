"""What happens in `delay` on real servers: messages come due while a million wait, the node is restarted, and hands
over to another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from contextlib import asynccontextmanager
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.producer import Producer
from evenlane.engine.proof.scenarios.arrivals import SECOND
from evenlane.engine.proof.scenarios.cluster import ENV, PATIENCE_S, cluster
from evenlane.engine.proof.scenarios.delay_figures import kind_of
from evenlane.engine.proof.scenarios.delay_load import BURST, FREE, PACED, TIMED, Projects
from evenlane.engine.proof.scenarios.putter import Putter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from evenlane.engine.producer.put import Put
    from evenlane.engine.proof.scenarios.cluster import Cluster
    from evenlane.engine.proof.scenarios.cluster_records import Record
    from evenlane.engine.proof.scenarios.delay_load import Size
    from evenlane.engine.proof.scenarios.scenario import Tell

FIRST, SECOND_NODE = "node-a", "node-b"
_LEAD_NS = 3 * SECOND  # from the puts to the first instant at which one of them is due
_BURST_AFTER_NS = 3 * SECOND
_LOOK_S = 0.1
_MB = 1 << 20


class Span(NamedTuple):
    """ns since boot."""

    start: int
    end: int


class Outcome(NamedTuple):
    """`burst` and `free` are the instants at which 5,000 messages came due. `expected`: messages to be handled, by
    kind of project. `restarted_s`: from the start of the process until it owned all, `exit_s`: from SIGTERM to the
    end of the process before it. `offset` is what has to be added to unix ns to get ns since boot.
    """

    records: list[Record]
    offset: int
    alone: Span
    free: int
    steady: Span
    burst: int
    restart: Span
    after_restart: Span
    handover: Span
    after_handover: Span
    expected: dict[str, int]
    fill_s: float
    exit_s: float
    restarted_s: float
    memory_mb: dict[str, float]


async def happened(url: str, size: Size, seed: int, tell: Tell) -> Outcome:
    """Raises EvenlaneError, CoordinationError."""
    projects = Projects(size)
    tell("delay: servers and topics", 0.0)
    async with cluster(url, projects) as made, Producer(nats=url, etcd=made.endpoint, env=ENV) as producer:
        return await _Run(made, projects, producer, seed, tell).outcome()


class _Run:
    def __init__(self, made: Cluster, projects: Projects, producer: Producer, seed: int, tell: Tell) -> None:
        self._cluster, self._projects, self._size = made, projects, projects.size
        self._producer, self._seed, self._tell = producer, seed, tell
        self._offset = now_ns() - time_ns()
        self._expected = dict.fromkeys((TIMED, BURST, FREE), 0)
        self._ended: defaultdict[str, set[tuple[int, str, int]]] = defaultdict(set)  # messages handled, by kind
        self._memory: dict[str, float] = {}

    async def outcome(self) -> Outcome:
        self._tell("delay: one node", 0.02)
        await self._cluster.start(FIRST)
        self._note_memory("idle")
        alone, free = await self._alone()
        self._note_memory("before")
        fill_s = await self._fill()
        self._note_memory("waiting")
        await self._put(self._projects.coming_due(self._soon(), self._size.timed_s), TIMED)
        start, burst = now_ns() + _LEAD_NS, now_ns() + _LEAD_NS + _BURST_AFTER_NS
        await self._put(self._projects.at_once(self._projects.burst, burst - self._offset), BURST)
        async with self._paced(self._size.most_s, 1):
            steady = await self._passed(start, self._size.steady_s, "a million wait", 0.45)
            restart, exit_s, restarted_s = await self._restart()
            self._note_memory("restarted")
            after_restart = await self._passed(now_ns(), self._size.again_s, "after the restart", 0.65)
            handover = await self._hand_over()
            after_handover = await self._passed(now_ns(), self._size.again_s, "after the hand-over", 0.8)
            self._note_memory("handed over", SECOND_NODE)
        await self._drained()
        return Outcome(
            self._cluster.ledger.records, self._offset, alone, free, steady, burst, restart, after_restart, handover,
            after_handover, self._expected, fill_s, exit_s, restarted_s, self._memory,
        )  # fmt: skip

    # ---- what is put

    async def _put(self, puts: Iterable[Put], kind: str = "") -> None:
        """Raises what a put raises."""
        count = 0

        def done(_number: int, outcome: object) -> None:
            nonlocal count
            if isinstance(outcome, Exception):
                raise outcome
            count += 1

        await self._producer.put_each(puts, done)
        if kind:
            self._expected[kind] += count

    async def _fill(self) -> float:
        self._tell("delay: a million that wait", 0.2)
        began = now_ns()
        await self._put(self._projects.waiting(self._seed, time_ns()))
        return (now_ns() - began) / SECOND

    @asynccontextmanager
    async def _paced(self, seconds: float, turn: int) -> AsyncIterator[None]:
        """Messages that are due at once, as long as the block runs."""
        load = self._projects.steady(seconds, turn)
        async with Putter(self._cluster.url, ENV, load) as putter, putter.putting(now_ns()):
            yield

    def _soon(self) -> int:
        """In unix ns."""
        return time_ns() + _LEAD_NS

    # ---- what happens

    async def _alone(self) -> tuple[Span, int]:
        """Before anything waits; at its end as many messages come due at once as do later, of one without a quota."""
        seconds = self._size.alone_s
        await self._put(self._projects.coming_due(self._soon(), seconds), TIMED)
        start = now_ns() + _LEAD_NS
        free = start + int((seconds + 1) * SECOND)
        await self._put(self._projects.at_once(self._projects.free, free - self._offset), FREE)
        async with self._paced(seconds + 30, 0):
            span = await self._passed(start, seconds, "nothing waits", 0.1)
            await self._handled(FREE)
        return span, free

    async def _passed(self, start: int, seconds: float, what: str, share: float) -> Span:
        self._tell(f"delay: {what}", share)
        span = Span(start, start + int(seconds * SECOND))
        await asyncio.sleep((span.end - now_ns()) / SECOND)
        return span

    async def _restart(self) -> tuple[Span, float, float]:
        self._tell("delay: the node is restarted", 0.6)
        start = now_ns()
        await self._cluster.nodes[FIRST].leave()
        ended_at = now_ns()
        await self._cluster.start(FIRST)
        end = now_ns()
        return Span(start, end), (ended_at - start) / SECOND, (end - ended_at) / SECOND

    async def _hand_over(self) -> Span:
        """To a second node: half of all when it comes, the rest when the first one leaves."""
        self._tell("delay: a hand-over", 0.75)
        start, first = now_ns(), self._cluster.nodes[FIRST]
        node = await self._cluster.spawn(SECOND_NODE)
        await node.ready()
        await self._cluster.carried_out(FIRST, SECOND_NODE)
        await first.leave()
        await self._cluster.carried_out(SECOND_NODE)
        return Span(start, now_ns())

    def _note_memory(self, when: str, name: str = FIRST) -> None:
        self._memory[when] = self._cluster.nodes[name].memory / _MB

    # ---- what became of it

    async def _handled(self, *kinds: str) -> None:
        """Wait until all of these have been handled; those that never are show in the figures."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S + self._size.most_s):
                while any(len(self._ended[kind]) < self._expected[kind] for kind in kinds):
                    await asyncio.sleep(_LOOK_S)
                    for record in self._cluster.ledger.read():
                        if not record.began:
                            self._ended[kind_of(record)].add(record.message)

    async def _drained(self) -> None:
        self._tell("delay: the rest", 0.85)
        self._expected[PACED] = await self._cluster.stored()
        await self._handled(TIMED, BURST, PACED)
