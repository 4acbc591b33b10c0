"""A run of `live` on real servers: topics are edited all the time, while nodes come, leave and are killed; then
the same on nodes that poll.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.producer import Producer
from evenlane.engine.proof.cluster.cluster import ENV, PATIENCE_S
from evenlane.engine.proof.figures import begins, count_most_within, percentile, ratio, spread
from evenlane.engine.proof.load.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.scenario import UNSHOWN
from evenlane.engine.proof.scenarios.cluster_scenario import ClusterRun
from evenlane.engine.proof.scenarios.live import figures, load
from evenlane.engine.proof.scenarios.live.edits import Editor, ProbeProducer
from evenlane.engine.proof.scenarios.live.figures import AROUND_NS, Latency, Owners, Rules
from evenlane.engine.proof.scenarios.live.load import DRAIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from evenlane.engine.proof.cluster.cluster import Cluster
    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.scenario import Arms, Progress
    from evenlane.engine.proof.scenarios.live.edits import Edit, Storm
    from evenlane.engine.proof.scenarios.live.load import LiveProjects, LiveSize

STAY = ("node-a", "node-b", "node-c")
COMES = "node-d"
_POLL = ("poll-a", "poll-b", "poll-c")
_PROGRAM = "from evenlane.engine.proof.baselines.polling import main; main()"
STEADY, STORM, JOIN, LEAVE, KILL, LEADER, POLLED = (
    "steady", "storm", "join", "leave", "kill -9", "leader killed", "polled",
)  # fmt: skip
_WARM_S = 3.0
_TAIL = 1.1  # rounds of edits
_SETTLED_NS = SECOND // 4  # time after an edit from which shares are counted
CHANGES = tuple(change for toggle in load.TOGGLES for change in (toggle.there, toggle.back))
_DRAINS = ("drain", "drain over")


class RunPhase(NamedTuple):
    """A phase, ns since boot. `led`: the time from which there was a leader again, according to etcd; 0 if there was
    one throughout. Edits continue after the end of the phase until each edit in it is followed by the next one of its
    topic.
    """

    start: int
    end: int
    moved: int  # partitions whose owner changed
    led: int = 0


class LiveRun(ClusterRun):
    """The run. `died` has the times at which nodes were killed, by name."""

    projects: LiveProjects
    size: LiveSize
    storm: Storm
    edits: list[Edit]

    def __init__(self, made: Cluster, projects: LiveProjects, seed: int, progress: Progress) -> None:
        super().__init__(made, projects, seed, progress)
        self.editor = Editor(made.endpoint, projects.edited)
        self._producer = Producer(nats=made.url, etcd=made.endpoint, env=ENV)
        self.probe = ProbeProducer(self._producer, [each.name for each in projects.edited if each.toggle.kind == DRAIN])
        self.phases: dict[str, RunPhase] = {}
        self.died: dict[str, int] = {}

    async def happen(self) -> None:
        """Raises EvenlaneError, CoordinationError."""
        self.step("a backlog", 0.05)
        await self.put_all(self.projects.make_waiting())
        self.step("three nodes", 0.1)
        await self.cluster.start(*STAY)
        async with self.editor.follow(), self.put_during(self.projects.steady()), self._producer:
            await asyncio.sleep(_WARM_S)
            async with self.editor.edit_during(self.size.every_s), self.probe.put_during():
                await self._run_edits()
            await self.editor.restore()
            await self._run_polls()
        self.cluster.handlers.read()
        self.edits = self.editor.edits(self.phases[POLLED].end)

    async def _run_edits(self) -> None:
        async with self._phase(STEADY, 0.15):
            await asyncio.sleep(self.size.steady_s)
        async with self._phase(STORM, 0.35):
            self.storm = await self.editor.storm(self.projects, self.size.storm_s)
        async with self._phase(JOIN, 0.4):
            await self.cluster.spawn(COMES)
            await self.cluster.wait_until_carried_out(*STAY, COMES)
        async with self._phase(LEAVE, 0.5):
            await self.cluster.nodes[COMES].leave()
            await self.cluster.wait_until_carried_out(*STAY)
        victim = next(name for name in STAY if name != self.history.leader)
        rest = [name for name in STAY if name != victim]
        async with self._phase(KILL, 0.55):
            await self._kill(victim)
            await self.cluster.wait_until_carried_out(*rest)
        await self._kill_leader(rest)

    async def _kill_leader(self, nodes: list[str]) -> None:
        """Kill the leader once there are three nodes again."""
        await self.cluster.spawn(COMES)
        await self.cluster.wait_until_carried_out(*nodes, COMES)
        leader = self.history.leader
        async with self._phase(LEADER, 0.7):
            await self._kill(leader)
            await self.history.wait_until(
                lambda: self.history.leader not in ("", leader), PATIENCE_S, "another node to lead"
            )
            led = now_ns()
            await self.cluster.wait_until_carried_out(*({*nodes, COMES} - {leader}))
        self.phases[LEADER] = self.phases[LEADER]._replace(led=led)

    async def _run_polls(self) -> None:
        self.step("nodes that poll", 0.85)
        for name in [*self.history.nodes]:
            await self.cluster.nodes[name].leave()
        await self.cluster.start(*_POLL, program=_PROGRAM)
        await asyncio.sleep(_WARM_S)
        every_s = self.size.polled_s / len(self.projects.edited)
        async with self.editor.edit_during(every_s), self._phase(POLLED, 0.9):
            await asyncio.sleep(self.size.polled_s)

    @asynccontextmanager
    async def _phase(self, name: str, share: float) -> AsyncIterator[None]:
        """The block, and some seconds after it."""
        self.step(name, share)
        start, reigns = now_ns(), len(self.history.reigns)
        yield
        await asyncio.sleep(self.size.after_s)
        self.phases[name] = RunPhase(start, now_ns(), len(self.history.reigns) - reigns)
        await asyncio.sleep(_TAIL * self._round_s(name))

    def _round_s(self, name: str) -> float:
        """The time in which each topic is edited once."""
        return self.size.polled_s if name == POLLED else self.size.every_s * len(self.projects.edited)

    async def _kill(self, name: str) -> None:
        self.died[name] = now_ns()
        await self.cluster.nodes[name].kill()

    def arms(self) -> Arms:
        return LiveReading(self).arms()


class LiveReading:
    """The figures of a run that is over."""

    def __init__(self, run: LiveRun) -> None:
        self._run, self._projects = run, run.projects
        self._owners = Owners(run.history.reigns, run.died)
        watched = {*self._projects.by_name, self._projects.peer.name, self._projects.storm.name}
        self._rules = Rules(each for each in run.records if each.project in watched)
        self._by_node: dict[str, list[int]] = defaultdict(list)
        for each in begins(run.records):
            self._by_node[each.node].append(each.at)

    def arms(self) -> Arms:
        arms = {name: self._arm(name, phase) for name, phase in self._run.phases.items()}
        return {**arms, UNSHOWN: {"least_left": self._least_left()}}

    def _arm(self, name: str, phase: RunPhase) -> Figures:
        edits = [edit for edit in self._run.edits if phase.start <= edit.at < phase.end and edit.until > phase.led]
        by_change: dict[str, list[float]] = {
            change: [] for change in CHANGES if name != POLLED or change not in _DRAINS
        }
        not_judged = missed = 0
        for edit in edits:
            if edit.change in by_change:
                found, others = self._latencies(edit, max(edit.at, phase.led))
                by_change[edit.change] += [each.ns / MILLISECOND for each in found]
                missed += sum(each.missed for each in found)
                not_judged += others
        every = [ms for each in by_change.values() for ms in each]
        return {
            "edits": len(edits), "moved": phase.moved, "judged": len(every), "not_judged": not_judged,
            "missed": missed,
            **spread(every, "all"),
            **{key: value for change, each in by_change.items() for key, value in spread(each, change).items()},
            **spread(self._measure_accepted(edits, phase), "accepted"),
            **({"leaderless_s": (phase.led - phase.start) / SECOND} if name == LEADER else {}),
            **(self._storm() if name == STORM else {}),
            **self._holds(edits, phase),
        }  # fmt: skip

    # ---- latencies

    def _latencies(self, edit: Edit, start: int) -> tuple[list[Latency], int]:
        """Return the latencies on each judged node, and the number of other nodes: those owned part of the topic for
        part of the time only.
        """
        if edit.change in _DRAINS:
            return self._at_producer(edit, start), 0
        partitions = self._projects.by_name[edit.name].partitions
        owners = self._owners.throughout(partitions, start - AROUND_NS, start + AROUND_NS)
        found = self._rules.latencies(edit, owners, start)
        return found, len(self._owners.throughout(partitions, start, start) - {each.node for each in found})

    def _at_producer(self, edit: Edit, start: int) -> list[Latency]:
        """From the write to the first put with the other outcome, or the last one with the old."""
        tried = [each for each in self._run.probe.tried if each.project == edit.name and start <= each.at < edit.until]
        new = edit.change != _DRAINS[0]
        first = next((each.ended for each in tried if each.taken == new), None)
        if first is None:
            return [Latency(edit, "producer", edit.until - start, True)] if tried else []
        old = [each.at for each in tried if each.taken != new]
        return [Latency(edit, "producer", max([first, *old]) - start)]

    def _measure_accepted(self, edits: Iterable[Edit], phase: RunPhase) -> list[float]:
        at = self._run.editor.accepted
        return [(at[edit.revision] - max(edit.at, phase.led)) / MILLISECOND for edit in edits if edit.revision in at]

    # ---- what holds after an edit

    def _holds(self, edits: Sequence[Edit], phase: RunPhase) -> Figures:
        """Return medians over the rest of each edit's time, over all nodes; and the quota's worst second."""
        found: dict[str, list[float]] = defaultdict(list)
        for edit in edits:
            start, end = edit.at + _SETTLED_NS, edit.until
            own = figures.count(self._rules.starts, edit.name, start, end)
            if edit.change == "weight up":
                peers = figures.count(self._rules.starts, self._projects.peer.name, start, end)
                found["weight_up_over_peer"].append(ratio(own, peers) or 0.0)
            elif edit.change == "ageing on":
                found["ageing_share"].append(ratio(figures.count(self._rules.low, edit.name, start, end), own) or 0.0)
            elif edit.change == "drain":
                found["handed_out_while_draining"].append(own)
        silent = max(
            figures.longest_gap(at for at in times if phase.start <= at < phase.end) for times in self._by_node.values()
        )
        return {
            **{name: percentile(sorted(values), 0.5) for name, values in found.items()},
            "worst_second_over_quota": self._worst_second(phase),
            "node_silent_max_ms": silent / MILLISECOND,
        }

    def _storm(self) -> Figures:
        """One quota, edited without end: what it allowed, and how soon the last edit counted."""
        storm, project = self._run.storm, self._projects.storm
        last = storm.last._replace(until=self._run.phases[STORM].end)
        partitions = self._projects.lies_on(project)
        owners = self._owners.throughout(partitions, last.at - AROUND_NS, last.at + AROUND_NS)
        found = [each.ns / MILLISECOND for each in self._rules.latencies(last, owners, last.at)]
        return {
            "storm_edits_s": storm.edits * SECOND / (last.at - storm.start),
            **spread(found, "storm_last"),
            "storm_worst_second_over_quota": self._most_in_1_s(project.name, storm.start, last.until)
            / max(load.STORM_QPS),
        }

    def _worst_second(self, phase: RunPhase) -> float:
        """The most starts in a second over the highest quota, of the topics whose quota is edited."""
        names = [name for name, each in self._projects.by_name.items() if each.toggle.kind == load.QUOTA]
        return max(self._most_in_1_s(name, phase.start, phase.end) for name in names) / load.QPS

    def _most_in_1_s(self, project: str, start: int, end: int) -> int:
        return count_most_within(at for at in figures.merge_marks(self._rules.starts, project) if start <= at < end)

    def _least_left(self) -> float:
        """The smallest part of its backlog that had not begun, over the edited topics."""
        begun: dict[str, set[tuple[int, str, int]]] = defaultdict(set)
        for record in self._run.records:
            begun[record.project].add(record.message)
        return min(1 - len(begun[name]) / count for name, count in self._projects.waits.items())
