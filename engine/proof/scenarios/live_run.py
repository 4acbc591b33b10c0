"""What happens in `live` on real servers: topics are edited all the time, while nodes come, leave and are killed; then
the same on nodes that poll.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.producer import Producer
from evenlane.engine.proof.scenarios.cluster import ENV, PATIENCE_S, cluster
from evenlane.engine.proof.scenarios.live_edits import Editor
from evenlane.engine.proof.scenarios.live_load import DRAIN, SERVICE_S, Projects
from evenlane.engine.proof.scenarios.live_probe import Probe
from evenlane.engine.proof.scenarios.putter import Putter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.proof.scenarios.cluster import Cluster
    from evenlane.engine.proof.scenarios.cluster_history import Reign
    from evenlane.engine.proof.scenarios.cluster_records import Record
    from evenlane.engine.proof.scenarios.live_edits import Edit, Storm
    from evenlane.engine.proof.scenarios.live_load import Size
    from evenlane.engine.proof.scenarios.live_probe import Tried
    from evenlane.engine.proof.scenarios.scenario import Tell

STAY = ("node-a", "node-b", "node-c")
COMES = "node-d"
_POLL = ("poll-a", "poll-b", "poll-c")
_PROGRAM = "from evenlane.engine.proof.scenarios.live_polling import main; main()"
STEADY, STORM, JOIN, LEAVE, KILL, LEADER, POLLED = (
    "steady", "storm", "join", "leave", "kill -9", "leader killed", "polled",
)  # fmt: skip
_LEAD_NS = 100_000_000  # from the moment all are ready to the load's first instant
_WARM_S = 3.0
_TAIL = 1.1  # rounds of edits


class Span(NamedTuple):
    """ns since boot. `led`: a leader was there again from then on, as etcd told; 0 if there was one all the time.
    Edits go on for so long after the end that each one in it is followed by the next of its topic.
    """

    start: int
    end: int
    led: int = 0


class Outcome(NamedTuple):
    records: list[Record]
    reigns: list[Reign]
    edits: list[Edit]
    accepted: dict[int, int]
    tried: list[Tried]
    spans: dict[str, Span]
    moved: dict[str, int]  # partitions that got another owner
    died: dict[str, int]  # nodes that were killed
    storm: Storm


async def happened(url: str, size: Size, tell: Tell) -> Outcome:
    """Raises EvenlaneError, CoordinationError."""
    projects = Projects(size)
    tell("live: servers and topics", 0.0)
    async with cluster(url, projects, service_s=SERVICE_S, concurrency=size.slots) as made:
        return await _Run(made, projects, tell).outcome()


class _Run:
    def __init__(self, made: Cluster, projects: Projects, tell: Tell) -> None:
        self._cluster, self._projects, self._size = made, projects, projects.size
        self._history, self._tell = made.history, tell
        self._editor = Editor(made.endpoint, projects.edited)
        self._spans: dict[str, Span] = {}
        self._moved: dict[str, int] = {}
        self._died: dict[str, int] = {}
        self._storm: Storm

    async def outcome(self) -> Outcome:
        self._tell("live: a backlog", 0.05)
        for load in self._projects.waiting():
            async with Putter(self._cluster.url, ENV, load) as putter:
                await putter.put(now_ns())
        self._tell("live: three nodes", 0.1)
        await self._cluster.start(*STAY)
        producer = Producer(nats=self._cluster.url, etcd=self._cluster.endpoint, env=ENV)
        probe = Probe(producer, [each.name for each in self._projects.edited if each.toggle.kind == DRAIN])
        async with self._editor.following(), self._crowd(), producer:
            await asyncio.sleep(_WARM_S)
            async with self._editor.editing(self._size.every_s), probe.running():
                await self._edited()
            await self._editor.restore()
            await self._polled()
        self._cluster.ledger.read()
        edits = self._editor.edits(self._spans[POLLED].end)
        told = self._history
        return Outcome(
            self._cluster.ledger.records, told.reigns, edits, self._editor.accepted, probe.tried, self._spans,
            self._moved, self._died, self._storm,
        )  # fmt: skip

    @asynccontextmanager
    async def _crowd(self) -> AsyncIterator[None]:
        """Puts for the crowd, as long as the block runs."""
        load = self._projects.steady()
        async with Putter(self._cluster.url, ENV, load) as putter, putter.putting(now_ns() + _LEAD_NS):
            yield

    async def _edited(self) -> None:
        async with self._span(STEADY, 0.15):
            await asyncio.sleep(self._size.steady_s)
        async with self._span(STORM, 0.35):
            self._storm = await self._editor.storm(self._projects, self._size.storm_s)
        async with self._span(JOIN, 0.4):
            await self._cluster.spawn(COMES)
            await self._cluster.carried_out(*STAY, COMES)
        async with self._span(LEAVE, 0.5):
            await self._cluster.nodes[COMES].leave()
            await self._cluster.carried_out(*STAY)
        victim = next(name for name in STAY if name != self._history.leader)
        rest = [name for name in STAY if name != victim]
        async with self._span(KILL, 0.55):
            await self._killed(victim)
            await self._cluster.carried_out(*rest)
        await self._leader_killed(rest)

    async def _leader_killed(self, nodes: list[str]) -> None:
        """With three nodes again."""
        await self._cluster.spawn(COMES)
        await self._cluster.carried_out(*nodes, COMES)
        leader = self._history.leader
        async with self._span(LEADER, 0.7):
            await self._killed(leader)
            await self._history.until(
                lambda: self._history.leader not in ("", leader), PATIENCE_S, "another node to lead"
            )
            led = now_ns()
            await self._cluster.carried_out(*({*nodes, COMES} - {leader}))
        self._spans[LEADER] = self._spans[LEADER]._replace(led=led)

    async def _polled(self) -> None:
        self._tell("live: nodes that poll", 0.85)
        for name in [*self._history.nodes]:
            await self._cluster.nodes[name].leave()
        await self._cluster.start(*_POLL, program=_PROGRAM)
        await asyncio.sleep(_WARM_S)
        every_s = self._size.polled_s / len(self._projects.edited)
        async with self._editor.editing(every_s), self._span(POLLED, 0.9):
            await asyncio.sleep(self._size.polled_s)

    @asynccontextmanager
    async def _span(self, name: str, share: float) -> AsyncIterator[None]:
        """What the block does, and some seconds after it."""
        self._tell(f"live: {name}", share)
        start, reigns = now_ns(), len(self._history.reigns)
        yield
        await asyncio.sleep(self._size.after_s)
        self._spans[name] = Span(start, now_ns())
        self._moved[name] = len(self._history.reigns) - reigns
        await asyncio.sleep(_TAIL * self._round_s(name))

    def _round_s(self, name: str) -> float:
        """In which each topic is edited once."""
        return self._size.polled_s if name == POLLED else self._size.every_s * len(self._projects.edited)

    async def _killed(self, name: str) -> None:
        self._died[name] = now_ns()
        await self._cluster.nodes[name].kill()
