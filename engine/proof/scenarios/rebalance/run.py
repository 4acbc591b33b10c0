"""A run of `rebalance` on real servers: a node joins, one leaves, one is killed; and the figures of each."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.cluster.cluster import PATIENCE_S
from evenlane.engine.proof.cluster.records import HELD
from evenlane.engine.proof.figures import begins, count_begun_again, percentile, ratio, spread, waits
from evenlane.engine.proof.load.arrivals import SECOND
from evenlane.engine.proof.load.placement import partition_loads_of
from evenlane.engine.proof.scenarios.cluster_scenario import ClusterRun
from evenlane.engine.proof.scenarios.rebalance import figures
from evenlane.engine.proof.scenarios.rebalance.load import DEEP, FULL, PACED, share_out
from evenlane.ring.placement.placement import place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.proof.cluster.cluster import Cluster
    from evenlane.engine.proof.cluster.node import CatchUpEnd
    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.scenario import Arms, Progress
    from evenlane.engine.proof.scenarios.rebalance.load import RebalanceProjects, RebalanceSize

STAY = ("node-a", "node-b", "node-c")
COMES = "node-d"
JOIN, LEAVE, KILL = "join", "leave", "kill -9"
_STEADY_S = 1.5  # s of load before the first change, and after the last
_HIGH = 0  # the band of held messages: they are next
_HELD_FROM = 1 << 40  # their ids are unique
_LOOK_S = 0.1
_LOGGED_BEYOND = 6_000  # messages of a partition for which a node always logs the end of its catch-up


class Change(NamedTuple):
    """A change of the nodes, from its cause at `start` to its end, ns since boot. `before` and `after` are the plans.
    `calm`: the begin of the calm before it; `settled`: the end of all its effects. `seconds`: for a leave, from SIGTERM
    to the process's end.
    """

    start: int
    end: int
    before: dict[int, str]
    after: dict[int, str]
    generations: int
    calm: int = 0
    settled: int = 0
    seconds: float = 0.0


class RebalanceRun(ClusterRun):
    """`deep` is the partition with the held messages and most of the backlog. `paced` is how many paced messages the
    store took, `fill_s` how long it took to put the backlog.
    """

    projects: RebalanceProjects
    size: RebalanceSize
    join: Change
    leave: Change
    kill: Change
    victim: str
    deep: int
    paced: int
    fill_s: float
    caught_up: list[CatchUpEnd]

    def __init__(self, made: Cluster, projects: RebalanceProjects, seed: int, progress: Progress) -> None:
        super().__init__(made, projects, seed, progress)
        self._held = self._waiting = 0  # messages put

    async def happen(self) -> None:
        """Raises EvenlaneError."""
        self.step("three nodes", 0.05)
        await self.cluster.start(*STAY)
        moving = self._will_move()
        self.deep = moving[0]
        counts = dict.fromkeys(moving, self.size.elsewhere) | {self.deep: self.size.waiting}
        self._waiting += await self.put_all(self.projects.make_waiting(self.projects.deep, counts))
        async with self._steady(0) as calm:
            self.join = (await self._join())._replace(calm=calm)
            self.leave = (await self._leave())._replace(calm=self.join.settled)
        self.victim, began = self.history.leader, now_ns()
        full = await self._fill()
        self.fill_s = (now_ns() - began) / SECOND
        async with self._steady(1) as calm:
            large = {number for number, count in full.items() if count > _LOGGED_BEYOND}
            self.kill = (await self._kill(large))._replace(calm=calm)
        self.step("the rest", 0.9)
        self.paced = await self.cluster.count_stored() - self._waiting - self._held
        await self.wait_until_handled({PACED: self.paced})
        self.caught_up = self._caught_up()

    # ---- the puts

    def _will_move(self) -> list[int]:
        """Partitions that the placement will give to the node that joins."""
        loads = partition_loads_of(self.projects.all, self.projects.cluster_config)
        after = place([*STAY, COMES], loads, self.history.plan)
        return [partition for partition, owner in enumerate(after) if owner == COMES]

    @asynccontextmanager
    async def _steady(self, turn: int) -> AsyncIterator[int]:
        """Put the paced load before, during and after the block; yields its begin (ns since boot)."""
        async with self.put_during(self.projects.steady(self.seed, self.size.most_s, turn)):
            began = now_ns()
            await asyncio.sleep(_STEADY_S)
            yield began
            await asyncio.sleep(_STEADY_S)

    async def _hold(self) -> None:
        """Put a message whose handler runs for seconds; returns once the handler has begun."""
        self._held += 1
        project, body = self.projects.deep[self.deep].name, b"%s %d" % (HELD, self.size.held_s * SECOND)
        await self.cluster.puts.put(project, 0, _HIGH, _HELD_FROM + self._held, body)
        await self.cluster.wait_for_record(lambda record: record.held and record.began, "the held message to begin")

    async def _fill(self) -> dict[int, int]:
        """Put a lasting backlog into the partitions of the node that will be killed; returns its size in each."""
        self.step("a backlog", 0.35)
        own = sorted(partition for partition, owner in self.history.owners.items() if owner == self.victim)
        size = self.size
        if size.each is None:
            counts = share_out(size.backlog, size.full, own)
        else:
            counts = dict.fromkeys(own, size.each) if size.each else {}
        self._waiting += await self.put_all(self.projects.make_waiting(self.projects.full, counts))
        return counts

    # ---- the changes

    async def _join(self) -> Change:
        """Start a node; wait until the handler that ran meanwhile has ended."""
        self.step("a node joins", 0.15)
        change = self._begin()
        await self.cluster.spawn(COMES)
        await self.history.wait_until(lambda: COMES in self.history.nodes, PATIENCE_S, f"{COMES} to come")
        await self._hold()
        await self.cluster.wait_until_carried_out(*STAY, COMES)
        change = self._end(change)
        await self.cluster.wait_for_record(lambda record: record.held and not record.began, "the held message to end")
        return change._replace(settled=now_ns())

    async def _leave(self) -> Change:
        """After a calm, stop a node with a running handler, for which the process waits."""
        await asyncio.sleep(_STEADY_S)
        self.step("a node leaves", 0.25)
        await self._hold()
        change, history = self._begin(), self.history
        left = asyncio.create_task(self.cluster.nodes[COMES].leave())
        await history.wait_until(lambda: set(history.plan.values()) == set(STAY), PATIENCE_S, "a plan without it")
        await history.wait_until(lambda: history.plan == history.owners, PATIENCE_S, "all to be taken")
        change = self._end(change)
        await left
        change = change._replace(seconds=(now_ns() - change.start) / SECOND)
        await self.cluster.wait_until_carried_out(*STAY)
        return change

    async def _kill(self, full: set[int]) -> Change:
        """Kill a node; wait until the victim's whole backlog has been fed again."""
        self.step("a node is killed", 0.65)
        change = self._begin()
        await self.cluster.nodes[self.victim].kill()
        await self.cluster.wait_until_carried_out(*(name for name in STAY if name != self.victim))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not full <= self._list_fed(change.start):  # noqa: ASYNC110 - a log notifies nobody
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise EvenlaneError(
                f"the scenario was aborted: the backlog isn't fed again after {PATIENCE_S:g} s"
            ) from None
        return self._end(change)

    def _begin(self) -> Change:
        plan = self.history.plan
        return Change(now_ns(), 0, plan, plan, self.history.generation)

    def _end(self, change: Change) -> Change:
        generations = self.history.generation - change.generations
        return change._replace(end=now_ns(), after=self.history.plan, generations=generations)

    def _list_fed(self, start: int) -> set[int]:
        return {each.partition for each in self._caught_up() if each.at > start}

    def _caught_up(self) -> list[CatchUpEnd]:
        return [each for node in self.cluster.nodes.values() for each in node.caught_up()]

    def arms(self) -> Arms:
        return RebalanceReading(self).arms()


class RebalanceReading:
    """The figures of a run that is over."""

    def __init__(self, run: RebalanceRun) -> None:
        self._run, self._begun = run, begins(run.records)
        self._paced = [record for record in self._begun if record.project.startswith(PACED)]
        self._waiting = [each for each in self._begun if each.project.startswith((DEEP, FULL)) and not each.held]

    def arms(self) -> Arms:
        run = self._run
        join, leave = self._measure_moved(run.join), self._measure_moved(run.leave)
        own = sum(owner == COMES for owner in run.leave.before.values())
        return {
            JOIN: join
            | {"moved_over_ideal": ratio(join["moved"], len(run.join.after) / (len(STAY) + 1))}
            | self._graceful(run.join, run.leave.start),
            LEAVE: leave
            | {"own": own, "moved_over_own": ratio(leave["moved"], own), "sigterm_to_exit_s": run.leave.seconds}
            | self._graceful(run.leave, run.kill.start),
            KILL: self._measure_moved(run.kill) | self._measure_kill() | self._measure_elsewhere(run.kill),
        }

    def _measure_moved(self, change: Change) -> Figures:
        """The partitions that moved, and their pauses."""
        moves = self._moves(change)
        pauses = figures.pauses(self._waiting, moves).values()
        return {
            "moved": len(figures.find_moved(change.before, change.after)),
            "generations": change.generations,
            "paused": len(pauses),
            **spread((pause / 1e6 for pause in pauses), "pause"),
            **figures.stages(self._waiting, self._begun, moves),
            "between_starts_ms": figures.measure_between(self._waiting, change.start),
        }

    def _moves(self, change: Change) -> list[figures.Move]:
        return figures.moves(self._run.history.reigns, change.start, change.end)

    def _measure_moving(self, change: Change) -> tuple[int, int]:
        """From the first plan to the first start in the last partition that moved."""
        start = min((at for at in self._run.history.planned if at >= change.start), default=change.end)
        return start, max(figures.first_starts(self._begun, self._moves(change)).values(), default=start)

    def _waits(self, partitions: set[int], start: int, end: int) -> list[float]:
        return waits((each for each in self._paced if each.partition in partitions), start, end, self._run.offset)

    def _graceful(self, change: Change, until: int) -> Figures:
        moves, (start, end) = self._moves(change), self._measure_moving(change)
        moved, deep = {move.partition for move in moves}, {self._run.deep}
        there, behind = self._waits(moved - deep, start, end), self._waits(moved & deep, start, end)
        return {
            "moving_s": (end - start) / SECOND,
            "waited_where_moved": len(there),
            **spread(there, "wait_where_moved"),
            **self._measure_elsewhere(change),
            "waited_beside_backlog": len(behind),
            **spread(behind, "wait_beside_backlog"),
            "begun_again": self._count_again(change.start, until),
            **figures.count_held(self._run.records, moves),
        }

    def _measure_elsewhere(self, change: Change) -> Figures:
        """Return the waits in partitions that don't move: while others move, and in the calm before."""
        stay = set(change.after) - {move.partition for move in self._moves(change)}
        found, before = self._waits(stay, *self._measure_moving(change)), self._waits(stay, change.calm, change.start)
        return {
            **spread(found, "wait_elsewhere"),
            "wait_before_p99_ms": percentile(before, 0.99),
            "elsewhere_over_before": ratio(percentile(found, 0.99), percentile(before, 0.99)),
        }

    def _count_again(self, start: int, end: float = float("inf")) -> int:
        """Return the begins, in this time, of messages that had begun before."""
        before, until = (count_begun_again(each for each in self._begun if each.at < at) for at in (start, end))
        return until - before

    def _measure_kill(self) -> Figures:
        run, moves, start = self._run, self._moves(self._run.kill), self._run.kill.start
        handled = figures.measure_pauses(self._begun, moves)
        released = [move.released for move in moves]
        gone = [at for at in run.history.leaderless if at >= start]
        return {
            "lease_ended_after_s": (max(released) - start) / SECOND if released else None,
            "leader_gone_after_s": (gone[0] - start) / SECOND if gone else None,
            "handled_again_partitions": len(handled),
            "handled_again_p50_s": percentile(handled, 0.5),
            "handled_again_max_s": handled[-1] if handled else None,
            **figures.measure_feeding(moves, run.caught_up),
            "put_backlog_s": run.fill_s,
            "begun_again": self._count_again(start),
            "may_come_again": figures.count_repeatable(run.records, run.victim, start),
            "put": run.paced,
            "never_handled": run.paced - len(run.cluster.handlers.handled[PACED]),
        }
