"""`rebalance`: what messages notice while partitions move: a node joins, a node leaves, a node is killed."""

from __future__ import annotations

import os
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.admin.plan.simulate import Fleet, simulate
from evenlane.engine.proof.scenarios.report import Bar, Report, middle, worst
from evenlane.engine.proof.scenarios.scenario import Scenario, between, silent
from evenlane.ring.placement.placement import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.rebalance_load import Size
    from evenlane.engine.proof.scenarios.scenario import Tell

_NODES = 3
_PROJECTS, _PARTITIONS = 1_000, 128
_JOIN, _LEAVE = 1.1, 1.6
_PAUSE_MS = 300.0
_WAIT_MS = 500.0
_ELSEWHERE = 1.2
_AGAIN_S = 1.0
_CAUGHT_UP_S = 8.0
_MOST_BACKLOG = 200_000  # messages of each lane


class Rebalance(Scenario):
    name = "rebalance"
    about = "3 nodes, 3,000 queues, 2,000 msg/s; one joins, one leaves, one is killed"
    broker_rounds = 1

    def __init__(self, size: Size | None = None) -> None:
        self._size = size

    def with_backlog(self, messages: int) -> Rebalance:
        from evenlane.engine.proof.scenarios.rebalance_load import Size  # noqa: PLC0415 - the simulator needs none

        between("--backlog", messages, 0, _MOST_BACKLOG)
        return Rebalance(replace(self._size or Size(), each=messages))

    def simulate(self, seed: int, rounds: int, tell: Tell) -> Report:
        """The placement alone, of projects with skewed quotas; the other strategies are the controls."""
        began = monotonic()
        seen: dict[str, list[Figures]] = {}
        for number in range(rounds):
            tell(self.name, number / rounds)
            for strategy in STRATEGIES:
                seen.setdefault(strategy, []).append(_placed(seed + number, strategy))
        tell(self.name, 1.0)
        arms = {name: middle(each) for name, each in seen.items()}
        notes = [
            "the placement alone: what moves when a fourth node comes and goes, as `evenlane plan simulate` has it"
        ]
        return Report(self.name, "simulator", seed, rounds, arms, _placement_bars(arms), monotonic() - began, notes)

    async def on_broker(self, url: str, seed: int, rounds: int, tell: Tell) -> Report:
        from evenlane.engine.proof.scenarios.rebalance_arms import arms  # noqa: PLC0415 - the simulator needs no servers
        from evenlane.engine.proof.scenarios.rebalance_load import Size  # noqa: PLC0415
        from evenlane.engine.proof.scenarios.rebalance_run import happened  # noqa: PLC0415

        began = monotonic()
        load_average = os.getloadavg()[0]
        seen: dict[str, list[Figures]] = {}
        for number in range(rounds):
            outcome = await happened(url, self._size or Size(), seed + number, tell)
            for name, figures in arms(outcome).items():
                seen.setdefault(name, []).append(figures)
        found = {name: middle(each) for name, each in seen.items()}
        alone = self.simulate(seed, rounds, silent)
        each_round = [{name: of[number] for name, of in seen.items()} for number in range(rounds)]
        bars = [*_moved_bars(found, alone.bars), *worst([self._bars(of) for of in each_round])]
        notes = [
            "bars but those of the placement are judged by the worst round; the table shows medians",
            "pause: from the last start under the old epoch to the first under the new, where something always waits",
            "the control of a hand-over is a node that is killed: its partitions wait for the end of its lease",
            f"load average before it: {load_average:.1f} on {os.cpu_count()} cores",
        ]
        tell(self.name, 1.0)
        beside = {f"{name} (placement)": figures for name, figures in alone.arms.items()}
        return Report(self.name, "broker", seed, rounds, {**found, **beside}, bars, monotonic() - began, notes)

    def _bars(self, arms: Mapping[str, Figures]) -> list[Bar]:
        """Of one round."""
        bars = [bar for name in ("join", "leave") for bar in _planned_bars(name, arms[name])]
        killed = arms["kill -9"]
        bars += [
            Bar("kill -9: handled again after lease end, s", killed["handled_again_max_s"], "<=", _AGAIN_S),
            Bar("kill -9: wait elsewhere / before", killed["elsewhere_over_before"], "<=", _ELSEWHERE),
            Bar("kill -9: never handled", killed["never_handled"], "<=", 0),
        ]
        if self._size is not None and self._size.each is not None:
            return bars
        return [
            *bars,
            Bar("kill -9: caught up, s a million", killed["caught_up_s_a_million"], "<=", _CAUGHT_UP_S),
            Bar("no hand-over (kill -9): p99 pause, ms", killed["pause_p99_ms"], ">", _PAUSE_MS, "control"),
        ]


def _planned_bars(name: str, of: Figures) -> list[Bar]:
    """Of a join or a leave."""
    return [
        Bar(f"{name}: p99 pause, ms", of["pause_p99_ms"], "<=", _PAUSE_MS),
        Bar(f"{name}: p99 wait where moved, ms", of["wait_where_moved_p99_ms"], "<=", _WAIT_MS),
        Bar(f"{name}: p99 wait beside backlog, ms", of["wait_beside_backlog_p99_ms"], "<=", _WAIT_MS),
        Bar(f"{name}: wait elsewhere / before", of["elsewhere_over_before"], "<=", _ELSEWHERE),
        Bar(f"{name}: begun again", of["begun_again"], "<=", 0),
        Bar(f"{name}: held across it", of["held"], ">=", 1),
        Bar(f"{name}: begun beside what is held", of["begun_beside_held"], ">=", 1),
    ]


def _placed(seed: int, strategy: str) -> Figures:
    join = simulate(Fleet(_NODES, _PROJECTS, _PARTITIONS, "join", seed, strategy))
    leave = simulate(Fleet(_NODES + 1, _PROJECTS, _PARTITIONS, "leave", seed, strategy))
    return {
        "join_moved_over_ideal": join["moved_over_ideal"],
        "leave_moved_over_own": leave["moved_over_ideal"],
        "max_over_mean": join["max_over_mean"],
    }


def _placement_bars(arms: Mapping[str, Figures]) -> list[Bar]:
    """Of the product first."""
    product, *others = arms
    bars = [
        Bar("join: moved / even share", arms[product]["join_moved_over_ideal"], "<=", _JOIN),
        Bar("leave: moved / its own", arms[product]["leave_moved_over_own"], "<=", _LEAVE),
    ]
    for name in others:
        bars.append(
            Bar(f"{name}, join: moved / even share", arms[name]["join_moved_over_ideal"], ">", _JOIN, "control")
        )
        bars.append(Bar(f"{name}, leave: moved / its own", arms[name]["leave_moved_over_own"], ">", _LEAVE, "control"))
    return bars


def _moved_bars(arms: Mapping[str, Figures], alone: list[Bar]) -> list[Bar]:
    """With the placement's own figures beside them; then its controls."""
    values = (arms["join"]["moved_over_ideal"], arms["leave"]["moved_over_own"])
    seen = [replace(bar, value=value).beside(bar) for bar, value in zip(alone, values, strict=False)]
    return [*seen, *alone[len(seen) :]]
