"""Two days of known loads on nodes on virtual time, and what the ledger has counted in each hour."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from evenlane.engine.admin.backlog.drop_client import DropRequest
from evenlane.engine.admin.backlog.drop_client import gather as gather_drops
from tests.days.cluster import VirtualCluster
from tests.days.surfaces import VirtualSurfaces
from tests.ledger.flow_loads import FlowLedger, FlowLoad, RunningLoads
from tests.simulation.loop import SECOND
from tests.support.virtual_time import run_virtually

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Stored
    from tests.days.cluster import VirtualNode
    from tests.simulation.loop import SimLoop
    from tests.support.figures import Figures

HOURS = 48
HOUR_S = 3_600
_LEAD_S = 300  # from the first node's start to the first load
_TICK_S = 0.25
_LOADED = range(30, 3_540)  # seconds of each hour in which messages come: no meter record is about two hours
_RUSH = range(1_700, 1_805)  # seconds of each hour in which the loads are so high that a rate can be right within 1 %
_RUSH_FACTOR = 40
_LOOK_S = 1_800  # in each hour: half a minute of rush has been measured, and what expires has been so for as long
_LOOK_AT_REST_S = 3_580
_TTL_S = 20
_CLOCK_AHEAD_S = 90.0


def _load_seconds(seconds: float) -> float:
    """Return the time of the loads, which passes faster in a rush, and stops around the start of each hour."""
    hours, second = divmod(seconds, HOUR_S)
    return hours * _of_hour(_LOADED.stop) + _of_hour(second)


def _of_hour(second: float) -> float:
    return _within(_LOADED, second) + (_RUSH_FACTOR - 1) * _within(_RUSH, second)


def _within(part: range, second: float) -> float:
    """Return how many seconds of a part have passed."""
    return min(max(0.0, second - part.start), float(len(part)))


_SPREAD = {"groups": 4, "spread": 4}  # over all partitions

LOADS = (
    FlowLoad("steady", rate=0.1, topic=_SPREAD, keys=4),  # each group gets a steady part
    FlowLoad(
        "burst",
        at_once=10_000,
        starts_s=_load_seconds(24 * HOUR_S + 300),
        topic={"qps": 5, **_SPREAD},
    ),
    FlowLoad("failing", rate=0.1, orders=("fail 9",)),
    FlowLoad("third", rate=0.1, orders=("", "", "fail 1")),
    FlowLoad("ordered", rate=0.05, orders=("", "", "fail 1"), topic={"ordered": True}, keys=50),
    FlowLoad("over", rate=0.2, topic={"qps": 4, "ttl": _TTL_S}, unbegun="expired"),
    FlowLoad("paused", rate=0.01, topic={"state": "paused"}),
    FlowLoad("delayed", rate=0.05, delay_s=float(HOUR_S)),
)


class TwoDays:
    """Simulates two days from `began_ns` (unix ns, a whole hour). After `run`, `counted` has the ledger's counts by
    project and hour, `records` the meter records, and `wrong` a sentence for each wrong figure of a surface, and for
    each error that a node has logged.
    """

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.counted: dict[str, list[Figures]] = {}
        self.records: list[Stored] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        with capture_logs() as errors:
            # a sampling round takes 1 s as in production: each rate is compared
            run_virtually(self._main, keep=("evenlane.engine.runtime.services",))
        self.wrong += [f"logged: {entry}" for entry in errors]

    async def _main(self, loop: SimLoop) -> None:
        start = loop.now + _LEAD_S * SECOND
        async with VirtualCluster(loop, self.began_ns - start, partitions=4) as cluster:
            first = await cluster.start("a")
            for load in LOADS:
                await cluster.topic(load.project, **load.topic)
            world = _World(cluster, start)
            producer = await cluster.producer()
            await world.sleep_until(0)
            async with (
                RunningLoads(world.ledger, producer, tick_s=_TICK_S, load_seconds=_load_seconds),
                asyncio.TaskGroup() as events,
            ):
                events.create_task(world.change_nodes(first))
                events.create_task(world.drop("paused"))
                events.create_task(self._look(world))
            self.counted = {project: world.count_hourly(project) for project in world.ledger.loads}
        self.records = cluster.meter_records()

    async def _look(self, world: _World) -> None:
        surfaces = VirtualSurfaces(world.cluster, world.ledger)
        for hour in range(HOURS):
            await world.sleep_until(hour * HOUR_S + _LOOK_S)
            self.wrong += [f"hour {hour}: {each}" for each in await surfaces.look()]
            await world.sleep_until(hour * HOUR_S + _LOOK_AT_REST_S)
            self.wrong += [f"hour {hour}, at rest: {each}" for each in await surfaces.look_at_rest()]
        await world.sleep_until(HOURS * HOUR_S)


class _World:
    """What happens on the cluster from `start` (ns of the loop) on."""

    def __init__(self, cluster: VirtualCluster, start: int) -> None:
        self.cluster, self._start = cluster, start
        self.ledger = FlowLedger(cluster, LOADS, lambda: cluster.now)

    async def sleep_until(self, seconds: float) -> None:
        """Sleep until then, in s since the start, which must not have passed."""
        left_s = (self._start - self.cluster.now) / SECOND + seconds
        assert left_s > 0
        await asyncio.sleep(left_s)

    async def change_nodes(self, first: VirtualNode) -> None:
        """Let a node join, and the first one stop during the burst; then a node joins whose clock is ahead."""
        await self.sleep_until(10 * HOUR_S + 1_200)
        await self.cluster.start("b")
        await self.sleep_until(24 * HOUR_S + 1_300)
        await self.cluster.stop(first)
        await self.sleep_until(30 * HOUR_S + 1_200)
        await self.cluster.start("c", ahead_s=_CLOCK_AHEAD_S)

    async def drop(self, project: str) -> None:
        """Drop what waits, as `evenlane backlog purge` does."""
        await self.sleep_until(24 * HOUR_S + 621.1)  # no put is due just then
        nodes = [node.name for node in self.cluster.nodes]
        async with self.cluster.line() as line:
            answers = await gather_drops(line, self.cluster.env, project, DropRequest(), nodes, 5.0)
        assert [True] * len(nodes) == [answer.done for answer in answers.values()]
        self.ledger.note_drop(project)

    def count_hourly(self, project: str) -> list[Figures]:
        """Return the counts of each hour, and what waits at its end."""
        events = self.ledger.events(project)
        ends = [self._start + hour * HOUR_S * SECOND for hour in range(HOURS + 1)]
        counts = [{name: float(bisect_left(times, end)) for name, times in events.items()} for end in ends]
        return [_figures(before, by_then) for before, by_then in pairwise(counts)]


def _figures(before: Figures, by_then: Figures) -> Figures:
    of_hour = {name: count - before[name] for name, count in by_then.items()}
    return {
        "arrived": of_hour["arriving"],
        "retried": of_hour["failed"] - of_hour["dead"],
        "attempts": of_hour["handled"] + of_hour["failed"],
        **{name: of_hour[name] for name in ("first_puts", "handled", "dead", "expired", "dropped")},
        "backlog": by_then["arriving"] - by_then["leaving"],
        "in_flight": 0.0,
    }
