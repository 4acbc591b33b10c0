"""`live`: how soon an edited topic acts on what waits, on every node, under load and while partitions move (X4)."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios.live_sim import simulated
from evenlane.engine.proof.scenarios.report import Bar, Report, middle
from evenlane.engine.proof.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.live_load import Size
    from evenlane.engine.proof.scenarios.scenario import Tell

_AT_ONCE_MS = 1_000.0
_MOVES = ("storm", "join", "leave", "kill -9", "leader killed")
_SHARE_OFF = 0.2  # so far a share may be off
_WORST_SECOND = 1.1
_NOT_SIMULATED = (
    "the scheduler alone, told of each change at once: how long an edit is on its way from etcd to the nodes can't be "
    "simulated, `evenlane bench live` without --sim measures it"
)
_NOTES = (
    "from the beginning of the write to etcd to the first handler start under the new rule, or the last under the old",
    "judged: nodes that own something of the topic from 1 s before to 1 s after the write, and whoever breaks it later",
    "what nobody owns after a kill -9 is judged from its new owner on",
    "leader killed: nobody accepts wishes until the next leader, so counted from the latter's key on",
)


class Live(Scenario):
    name = "live"
    about = "3 nodes with all slots taken; a topic is edited every 100 ms, while nodes join, leave and are killed"
    broker_rounds = 1

    def __init__(self, size: Size | None = None) -> None:
        self._size = size

    def simulate(self, seed: int, rounds: int, tell: Tell) -> Report:
        """The scheduler alone, on a clock that we turn: there is no way from etcd to a node in it."""
        began = monotonic()
        seen = [simulated(seed + number, tell) for number in range(rounds)]
        arms = {name: middle([each[name] for each in seen]) for name in seen[0]}
        notes = [_NOT_SIMULATED]
        return Report(self.name, "simulator", seed, rounds, arms, _sim_bars(arms), monotonic() - began, notes)

    async def on_broker(self, url: str, seed: int, rounds: int, tell: Tell) -> Report:
        from evenlane.engine.proof.scenarios.live_arms import Reading  # noqa: PLC0415 - the simulator needs no servers
        from evenlane.engine.proof.scenarios.live_load import Projects, Size  # noqa: PLC0415
        from evenlane.engine.proof.scenarios.live_run import happened  # noqa: PLC0415

        began, size = monotonic(), self._size or Size()
        load_average = os.getloadavg()[0]
        seen: dict[str, list[Figures]] = {}
        left = 1.0
        for _ in range(rounds):
            reading = Reading(await happened(url, size, tell), Projects(size))
            left = min(left, reading.least_left())
            for name, figures in reading.arms().items():
                seen.setdefault(name, []).append(figures)
        found = {name: middle(each) for name, each in seen.items()}
        notes = [*_NOTES, f"load average before it: {load_average:.1f} on {os.cpu_count()} cores"]
        tell(self.name, 1.0)
        return Report(self.name, "broker", seed, rounds, found, _bars(found, left), monotonic() - began, notes)


def _bars(arms: Mapping[str, Figures], left: float) -> list[Bar]:
    from evenlane.engine.proof.scenarios.live_arms import CHANGES  # noqa: PLC0415

    steady = arms["steady"]
    bars = [Bar(f"{change}: max, ms", steady[f"{change}_max_ms"], "<=", _AT_ONCE_MS) for change in CHANGES]
    bars += [Bar(f"{name}: all, max, ms", arms[name]["all_max_ms"], "<=", _AT_ONCE_MS) for name in _MOVES]
    for name in ("steady", *_MOVES):
        bars.append(Bar(f"{name}: worst second / quota", arms[name]["worst_second_over_quota"], "<=", _WORST_SECOND))
    storm = arms["storm"]
    return [
        *bars,
        Bar("storm: its last edit, max, ms", storm["storm_last_max_ms"], "<=", _AT_ONCE_MS),
        Bar("storm: worst second / its highest quota", storm["storm_worst_second_over_quota"], "<=", _WORST_SECOND),
        Bar("weight up: its share / that of an equal", steady["weight_up_over_peer"], ">=", 1 - _SHARE_OFF),
        Bar("weight up: the same", steady["weight_up_over_peer"], "<=", 1 + _SHARE_OFF),
        Bar("ageing 1/2: share of the lower band", steady["ageing_share"], ">=", 0.5 * (1 - _SHARE_OFF)),
        Bar("ageing 1/2: the same", steady["ageing_share"], "<=", 0.5 * (1 + _SHARE_OFF)),
        Bar("draining: handed out meanwhile", steady["handed_out_while_draining"], ">=", 1),
        Bar("least backlog left / put", left, ">", 0),
        Bar("polled every 10 s: all, p50, ms", arms["polled"]["all_p50_ms"], ">", _AT_ONCE_MS, "control"),
    ]


def _sim_bars(arms: Mapping[str, Figures]) -> list[Bar]:
    product, control = arms["product"], arms["new messages only"]
    bars = [Bar(f"{name.removesuffix('_ms')}, ms", value, "<=", _AT_ONCE_MS) for name, value in product.items()]
    return [
        *bars,
        Bar("new messages only: worst, ms", max(v or 0 for v in control.values()), ">", _AT_ONCE_MS, "control"),
    ]
