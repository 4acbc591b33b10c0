"""`live`: how soon an edited topic acts on the backlog, on every node, under load and while partitions move (X4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenario import UNSHOWN
from evenlane.engine.proof.scenarios.cluster_scenario import ClusterScenario
from evenlane.engine.proof.scenarios.live.load import SERVICE_S, LiveProjects, LiveSize
from evenlane.engine.proof.scenarios.live.run import CHANGES, JOIN, KILL, LEADER, LEAVE, POLLED, STEADY, STORM, LiveRun
from evenlane.engine.proof.scenarios.live.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.proof.report import Report
    from evenlane.engine.proof.scenario import Arms, Progress

_AT_ONCE_MS = 1_000.0
_MOVES = (STORM, JOIN, LEAVE, KILL, LEADER)
_SHARE_OFF = 0.2  # allowed deviation of a share
_WORST_SECOND = 1.1
_NOT_SIMULATED = (
    "the scheduler alone, with each change at once: how long an edit is on its way from etcd to the nodes can't be "
    "simulated, `evenlane bench live` without --sim measures it"
)
_NOTES = (
    "from the beginning of the write to etcd to the first handler start under the new rule, or the last under the old",
    "judged: nodes that own something of the topic from 1 s before to 1 s after the write, and whoever breaks it later",
    "what nobody owns after a kill -9 is judged from its new owner on",
    "leader killed: nobody accepts specs until the next leader, so counted from the latter's key on",
)


class LiveScenario(ClusterScenario):
    name = "live"
    about = "3 nodes with all slots taken; a topic is edited every 100 ms, while nodes join, leave and are killed"
    size_type, projects_type, run_type = LiveSize, LiveProjects, LiveRun
    service_s = SERVICE_S
    sim_notes = (_NOT_SIMULATED,)
    broker_notes = _NOTES

    def settings(self) -> dict[str, object]:
        return {**super().settings(), "concurrency": self.size.slots}

    def sim_round(self, seed: int, progress: Progress) -> Arms:
        """Run the scheduler alone, on a virtual clock: the way of an edit from etcd to a node isn't part of it."""
        return simulate(seed, progress)

    def sim_bars(self, arms: Arms) -> list[Bar]:
        bars = [Bar(f"{name.removesuffix('_ms')}, ms", ms, "<=", _AT_ONCE_MS) for name, ms in arms["product"].items()]
        worst = max(ms or 0 for ms in arms["new messages only"].values())
        return [*bars, Bar("new messages only: worst, ms", worst, ">", _AT_ONCE_MS, "control")]

    def broker_bars(self, arms: Arms, rounds: Sequence[Arms], simulated: Report | None) -> list[Bar]:  # noqa: ARG002
        steady, storm = arms[STEADY], arms[STORM]
        left = min(each[UNSHOWN]["least_left"] or 0.0 for each in rounds)
        bars = [Bar(f"{change}: max, ms", steady[f"{change}_max_ms"], "<=", _AT_ONCE_MS) for change in CHANGES]
        bars += [Bar(f"{name}: all, max, ms", arms[name]["all_max_ms"], "<=", _AT_ONCE_MS) for name in _MOVES]
        for name in (STEADY, *_MOVES):
            worst = arms[name]["worst_second_over_quota"]
            bars.append(Bar(f"{name}: worst second / quota", worst, "<=", _WORST_SECOND))
        worst = storm["storm_worst_second_over_quota"]
        return [
            *bars,
            Bar("storm: its last edit, max, ms", storm["storm_last_max_ms"], "<=", _AT_ONCE_MS),
            Bar("storm: worst second / its highest quota", worst, "<=", _WORST_SECOND),
            Bar("weight up: its share / that of an equal", steady["weight_up_over_peer"], ">=", 1 - _SHARE_OFF),
            Bar("weight up: the same", steady["weight_up_over_peer"], "<=", 1 + _SHARE_OFF),
            Bar("ageing 1/2: share of the lower band", steady["ageing_share"], ">=", 0.5 * (1 - _SHARE_OFF)),
            Bar("ageing 1/2: the same", steady["ageing_share"], "<=", 0.5 * (1 + _SHARE_OFF)),
            Bar("draining: handed out meanwhile", steady["handed_out_while_draining"], ">=", 1),
            Bar("least backlog left / put", left, ">", 0),
            Bar("polled every 10 s: all, p50, ms", arms[POLLED]["all_p50_ms"], ">", _AT_ONCE_MS, "control"),
        ]
