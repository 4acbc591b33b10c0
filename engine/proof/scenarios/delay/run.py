"""A run of `delay` on real servers, with the figures of each part: messages become due while a million wait, the node
is restarted, and the node hands off to another.
"""

from __future__ import annotations

import asyncio
from time import time_ns
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.producer import Producer
from evenlane.engine.proof.cluster.cluster import ENV, PATIENCE_S
from evenlane.engine.proof.figures import begins, count_begun_again, count_most_within, spread, waits
from evenlane.engine.proof.load.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.scenarios.cluster_scenario import ClusterRun, RunSpan
from evenlane.engine.proof.scenarios.delay.load import BURST, FREE, PACED, TIMED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.producer.put import Put
    from evenlane.engine.proof.cluster.cluster import Cluster
    from evenlane.engine.proof.cluster.records import HandlerRecord
    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.scenario import Arms, Progress
    from evenlane.engine.proof.scenarios.delay.load import DelayProjects, DelaySize

FIRST, SECOND_NODE = "node-a", "node-b"
_LEAD_NS = 3 * SECOND  # from the puts to the first due time
_BURST_AFTER_NS = 3 * SECOND
_SETTLED_NS = SECOND  # skipped at the beginning: then a burst's rate is that of the quota, without the topic's `burst`
_MB = 1 << 20


class DelayRun(ClusterRun):
    """`burst` and `free` are the instants at which 5,000 messages became due. `expected`: messages to be handled, by
    kind of project. `restarted_s`: from the start of the process until it owned all, `exit_s`: from SIGTERM to the
    end of the process before it.
    """

    projects: DelayProjects
    size: DelaySize
    alone: RunSpan
    free: int
    steady: RunSpan
    burst: int
    restart: RunSpan
    after_restart: RunSpan
    handoff: RunSpan
    after_handoff: RunSpan
    fill_s: float
    exit_s: float
    restarted_s: float

    def __init__(self, made: Cluster, projects: DelayProjects, seed: int, progress: Progress) -> None:
        super().__init__(made, projects, seed, progress)
        self._producer = Producer(nats=made.url, etcd=made.endpoint, env=ENV)
        self.expected = dict.fromkeys((TIMED, BURST, FREE), 0)
        self.memory_mb: dict[str, float] = {}

    async def happen(self) -> None:
        """Raises EvenlaneError, CoordinationError."""
        async with self._producer:
            self.step("one node", 0.02)
            await self.cluster.start(FIRST)
            self._note_memory("idle")
            await self._alone()
            self._note_memory("before")
            await self._fill()
            self._note_memory("waiting")
            await self._put(self.projects.make_coming_due(time_ns() + _LEAD_NS, self.size.timed_s), TIMED)
            start, self.burst = now_ns() + _LEAD_NS, now_ns() + _LEAD_NS + _BURST_AFTER_NS
            await self._put(self.projects.make_at_once(self.projects.burst, self.burst - self.offset), BURST)
            async with self.put_during(self.projects.steady(self.size.most_s, 1)):
                self.steady = await self._run_span(start, self.size.steady_s, "a million wait", 0.45)
                await self._restart()
                self._note_memory("restarted")
                self.after_restart = await self._run_span(now_ns(), self.size.again_s, "after the restart", 0.65)
                await self._hand_off()
                self.after_handoff = await self._run_span(now_ns(), self.size.again_s, "after the handoff", 0.8)
                self._note_memory("handed over", SECOND_NODE)
            self.step("the rest", 0.85)
            self.expected[PACED] = await self.cluster.count_stored()
            await self._wait_until_handled(TIMED, BURST, PACED)

    async def _alone(self) -> None:
        """Measure before anything waits. At the end, the messages of `free` become due at once: as many as those of
        `burst` do later.
        """
        seconds = self.size.alone_s
        await self._put(self.projects.make_coming_due(time_ns() + _LEAD_NS, seconds), TIMED)
        start = now_ns() + _LEAD_NS
        self.free = start + int((seconds + 1) * SECOND)
        await self._put(self.projects.make_at_once(self.projects.free, self.free - self.offset), FREE)
        async with self.put_during(self.projects.steady(seconds + 30, 0)):
            self.alone = await self._run_span(start, seconds, "nothing waits", 0.1)
            await self._wait_until_handled(FREE)

    async def _fill(self) -> None:
        self.step("a million that wait", 0.2)
        began = now_ns()
        await self._put(self.projects.make_waiting(self.seed, time_ns()))
        self.fill_s = (now_ns() - began) / SECOND

    async def _put(self, puts: Iterable[Put], kind: str = "") -> None:
        """Raises what a put raises."""
        count = 0

        def on_outcome(_number: int, outcome: object) -> None:
            nonlocal count
            if isinstance(outcome, Exception):
                raise outcome
            count += 1

        await self._producer.put_each(puts, on_outcome)
        if kind:
            self.expected[kind] += count

    async def _run_span(self, start: int, seconds: float, what: str, share: float) -> RunSpan:
        self.step(what, share)
        span = RunSpan(start, start + int(seconds * SECOND))
        await asyncio.sleep((span.end - now_ns()) / SECOND)
        return span

    async def _restart(self) -> None:
        self.step("the node is restarted", 0.6)
        start = now_ns()
        await self.cluster.nodes[FIRST].leave()
        ended_at = now_ns()
        await self.cluster.start(FIRST)
        self.restart = RunSpan(start, now_ns())
        self.exit_s, self.restarted_s = (ended_at - start) / SECOND, (self.restart.end - ended_at) / SECOND

    async def _hand_off(self) -> None:
        """Hand off to a second node: half of the partitions when it joins, the rest when the first one leaves."""
        self.step("a handoff", 0.75)
        start = now_ns()
        node = await self.cluster.spawn(SECOND_NODE)
        await node.ready()
        await self.cluster.wait_until_carried_out(FIRST, SECOND_NODE)
        await self.cluster.nodes[FIRST].leave()
        await self.cluster.wait_until_carried_out(SECOND_NODE)
        self.handoff = RunSpan(start, now_ns())

    def _note_memory(self, when: str, name: str = FIRST) -> None:
        self.memory_mb[when] = self.cluster.nodes[name].memory / _MB

    async def _wait_until_handled(self, *kinds: str) -> None:
        await self.wait_until_handled({kind: self.expected[kind] for kind in kinds}, PATIENCE_S + self.size.most_s)

    # ---- figures

    def arms(self) -> Arms:
        return {
            "nothing waits": self._part(self.alone)
            | {"free_over_quota": self._most_in_1_s(FREE) / self.size.burst_qps},
            "a million wait": self._part(self.steady) | self._burst(),
            "restart": self._part(self.restart)
            | {"exit_s": self.exit_s, "start_to_own_s": self.restarted_s, "gap_s": self._gap(self.restart)},
            "after restart": self._part(self.after_restart),
            "hand-over": self._part(self.handoff) | {"gap_s": self._gap(self.handoff)},
            "after hand-over": self._part(self.after_handoff),
            "whole run": self._whole(),
        }

    def _part(self, span: RunSpan) -> Figures:
        late = lateness(self.records, *span, self.offset)
        return {
            "seconds": (span.end - span.start) / SECOND,
            "came_due": len(late),
            **spread(late, "lateness"),
            **spread(self._waits(*span), "wait"),
        }

    def _waits(self, start: int, end: int) -> list[float]:
        return waits(begins(self.records, PACED), start, end, self.offset)

    def _burst(self) -> Figures:
        """The figures of the messages that became due at one instant, until SIGTERM."""
        msg_s = rate(self.records, BURST, self.burst + _SETTLED_NS, self.steady.end)
        return {
            "burst_over_quota": msg_s / self.size.burst_qps,
            "burst_most_in_1_s": self._most_in_1_s(BURST),
            **spread(self._waits(self.steady.start, self.burst), "wait_before_burst"),
            **spread(self._waits(self.burst, self.steady.end), "wait_in_burst"),
        }

    def _most_in_1_s(self, project: str) -> int:
        return count_most_within(record.at for record in begins(self.records, project))

    def _gap(self, span: RunSpan) -> float | None:
        """The longest time in this span in which no message was started, s."""
        times = [record.at for record in begins(self.records) if span.start <= record.at < span.end]
        gaps = [later - sooner for sooner, later in zip([span.start, *times], [*times, span.end], strict=True)]
        return max(gaps) / SECOND if times else None

    def _whole(self) -> Figures:
        handled, memory = self.cluster.handlers.handled, self.memory_mb
        return {
            "early": early(self.records, self.offset),
            "handled_twice": count_begun_again(self.records),
            "never_handled": sum(max(0, count - len(handled[kind])) for kind, count in self.expected.items()),
            **{f"put_{kind}": float(count) for kind, count in self.expected.items()},
            "put_a_million_s": self.fill_s,
            "memory_more_mb": memory["waiting"] - memory["before"],
            **{f"memory_{when.replace(' ', '_')}_mb": value for when, value in memory.items()},
        }


def lateness(records: Iterable[HandlerRecord], start: int, end: int, offset: int) -> list[float]:
    """Handler start minus due time, ms, sorted, of timed messages due in [start, end); negative: before its time."""
    return sorted(
        (record.at - record.due - offset) / MILLISECOND
        for record in begins(records, TIMED)
        if start <= record.due + offset < end
    )


def rate(records: Iterable[HandlerRecord], project: str, start: int, end: int) -> float:
    """Begins of a project in [start, end), msg/s."""
    return sum(start <= record.at < end for record in begins(records, project)) * SECOND / (end - start)


def early(records: Iterable[HandlerRecord], offset: int) -> int:
    """The begins that were before the message's due time."""
    return sum(record.began and record.at < record.due + offset for record in records)
