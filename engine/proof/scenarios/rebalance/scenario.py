"""`rebalance`: what messages notice while partitions move: a node joins, a node leaves, a node is killed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from evenlane.engine.admin.plan.simulate import Fleet, simulate
from evenlane.engine.proof.report import Bar, worst
from evenlane.engine.proof.scenario import check_between
from evenlane.engine.proof.scenarios.cluster_scenario import ClusterScenario
from evenlane.engine.proof.scenarios.rebalance.load import RebalanceProjects, RebalanceSize
from evenlane.engine.proof.scenarios.rebalance.run import JOIN, KILL, LEAVE, RebalanceRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.report import Report
    from evenlane.engine.proof.scenario import Arms, Progress

_NODES = 3
_STRATEGIES = ("bounded-ring", "range", "round-robin")
_PROJECTS, _PARTITIONS = 1_000, 128
_JOIN, _LEAVE = 1.1, 1.6
_PAUSE_MS = 300.0
_WAIT_MS = 500.0
_ELSEWHERE = 1.2
_AGAIN_S = 1.0
_CAUGHT_UP_S = 8.0
_MOST_BACKLOG = 200_000  # messages of each lane


class RebalanceScenario(ClusterScenario):
    name = "rebalance"
    about = "3 nodes, 3,000 queues, 2,000 msg/s; one joins, one leaves, one is killed"
    size_type, projects_type, run_type = RebalanceSize, RebalanceProjects, RebalanceRun
    reference = "placement"
    sim_notes = (
        "the placement alone: what moves when a fourth node comes and goes, as `evenlane plan simulate` has it",
    )
    broker_notes = (
        "bars but those of the placement are judged by the worst round; the table shows medians",
        "pause: from the last start under the old epoch to the first under the new, where something always waits",
        "the control of a handoff is a node that is killed: its partitions wait for the end of its lease",
    )

    def with_backlog(self, messages: int) -> RebalanceScenario:
        return RebalanceScenario(replace(self.size, each=check_between("--backlog", messages, 0, _MOST_BACKLOG)))

    def sim_round(self, seed: int, progress: Progress) -> Arms:
        """The placement alone, of projects with skewed quotas; the other strategies are the controls."""
        progress(self.name, 0.0)
        return {strategy: _simulate_placement(seed, strategy) for strategy in _STRATEGIES}

    def sim_bars(self, arms: Arms) -> list[Bar]:
        product, *others = arms
        bars = [
            Bar("join: moved / even share", arms[product]["join_moved_over_ideal"], "<=", _JOIN),
            Bar("leave: moved / its own", arms[product]["leave_moved_over_own"], "<=", _LEAVE),
        ]
        for name in others:
            join, leave = arms[name]["join_moved_over_ideal"], arms[name]["leave_moved_over_own"]
            bars.append(Bar(f"{name}, join: moved / even share", join, ">", _JOIN, "control"))
            bars.append(Bar(f"{name}, leave: moved / its own", leave, ">", _LEAVE, "control"))
        return bars

    def broker_bars(self, arms: Arms, rounds: Sequence[Arms], simulated: Report | None) -> list[Bar]:
        """The placement's bars, compared with its own figures, and its controls; then the worst of all rounds."""
        assert simulated is not None
        values = (arms[JOIN]["moved_over_ideal"], arms[LEAVE]["moved_over_own"])
        moved = [replace(bar, value=value).against(bar) for bar, value in zip(simulated.bars, values, strict=False)]
        return [*moved, *simulated.bars[len(moved) :], *worst([self._round_bars(each) for each in rounds])]

    def _round_bars(self, arms: Arms) -> list[Bar]:
        killed = arms[KILL]
        bars = [
            *_graceful_bars(JOIN, arms[JOIN]),
            *_graceful_bars(LEAVE, arms[LEAVE]),
            Bar("kill -9: handled again after lease end, s", killed["handled_again_max_s"], "<=", _AGAIN_S),
            Bar("kill -9: wait elsewhere / before", killed["elsewhere_over_before"], "<=", _ELSEWHERE),
            Bar("kill -9: never handled", killed["never_handled"], "<=", 0),
        ]
        if self.size.each is not None:
            return bars
        return [
            *bars,
            Bar("kill -9: caught up, s a million", killed["caught_up_s_a_million"], "<=", _CAUGHT_UP_S),
            Bar("no hand-over (kill -9): p99 pause, ms", killed["pause_p99_ms"], ">", _PAUSE_MS, "control"),
        ]


def _graceful_bars(name: str, of: Figures) -> list[Bar]:
    """The bars of a join or a leave."""
    return [
        Bar(f"{name}: p99 pause, ms", of["pause_p99_ms"], "<=", _PAUSE_MS),
        Bar(f"{name}: p99 wait where moved, ms", of["wait_where_moved_p99_ms"], "<=", _WAIT_MS),
        Bar(f"{name}: p99 wait beside backlog, ms", of["wait_beside_backlog_p99_ms"], "<=", _WAIT_MS),
        Bar(f"{name}: wait elsewhere / before", of["elsewhere_over_before"], "<=", _ELSEWHERE),
        Bar(f"{name}: begun again", of["begun_again"], "<=", 0),
        Bar(f"{name}: held across it", of["held"], ">=", 1),
        Bar(f"{name}: begun beside what is held", of["begun_beside_held"], ">=", 1),
    ]


def _simulate_placement(seed: int, strategy: str) -> Figures:
    join = simulate(Fleet(_NODES, _PROJECTS, _PARTITIONS, "join", seed, strategy))
    leave = simulate(Fleet(_NODES + 1, _PROJECTS, _PARTITIONS, "leave", seed, strategy))
    return {
        "join_moved_over_ideal": join["moved_over_ideal"],
        "leave_moved_over_own": leave["moved_over_ideal"],
        "max_over_mean": join["max_over_mean"],
    }
