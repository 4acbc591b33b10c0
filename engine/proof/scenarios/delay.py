"""`delay`: how exactly messages are handled when they are due, while a million others wait for later."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios.delay_sim import by_heap, by_wheel
from evenlane.engine.proof.scenarios.report import Bar, Report, middle
from evenlane.engine.proof.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.proof.scenarios.delay_load import Size
    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.scenario import Tell

_LATE_MS = 100.0
_HEAP, _WHEEL = "by heap", "once a second"


class Delay(Scenario):
    name = "delay"
    about = "1,000,000 delayed messages wait, others come due; a restart and a hand-over in the middle"
    broker_rounds = 1

    def __init__(self, size: Size | None = None) -> None:
        self._size = size

    def simulate(self, seed: int, rounds: int, tell: Tell) -> Report:
        """The index of delayed messages alone."""
        began = monotonic()
        seen: dict[str, list[Figures]] = {}
        for number in range(rounds):
            tell(self.name, number / rounds)
            seen.setdefault(_HEAP, []).append(by_heap(seed + number, tell))
            seen.setdefault(_WHEEL, []).append(by_wheel(seed + number))
        tell(self.name, 1.0)
        arms = {name: middle(each) for name, each in seen.items()}
        bars = [
            Bar("lateness max, ms", arms[_HEAP]["lateness_max_ms"], "<=", _LATE_MS),
            Bar("before it was due", arms[_HEAP]["early"], "<=", 0),
            Bar("looked at once a second: lateness p99, ms", arms[_WHEEL]["lateness_p99_ms"], ">", _LATE_MS, "control"),
        ]
        notes = ["the index alone, a million messages due within an hour"]
        return Report(self.name, "simulator", seed, rounds, arms, bars, monotonic() - began, notes)

    async def on_broker(self, url: str, seed: int, rounds: int, tell: Tell) -> Report:
        from evenlane.engine.proof.scenarios.delay_arms import arms  # noqa: PLC0415 - the simulator needs no servers
        from evenlane.engine.proof.scenarios.delay_load import Size  # noqa: PLC0415
        from evenlane.engine.proof.scenarios.delay_run import happened  # noqa: PLC0415

        began, size = monotonic(), self._size or Size()
        load_average = os.getloadavg()[0]
        seen: dict[str, list[Figures]] = {}
        for number in range(rounds):
            outcome = await happened(url, size, seed + number, tell)
            for name, figures in arms(outcome, size).items():
                seen.setdefault(name, []).append(figures)
        found = {name: middle(each) for name, each in seen.items()}
        notes = [
            "lateness: handler start minus due time, by the clock of the machine that all of it runs on",
            f"load average before it: {load_average:.1f} on {os.cpu_count()} cores",
        ]
        tell(self.name, 1.0)
        return Report(self.name, "broker", seed, rounds, found, _bars(found, size), monotonic() - began, notes)


def _bars(arms: Mapping[str, Figures], size: Size) -> list[Bar]:
    steady, whole, free = arms["a million wait"], arms["whole run"], arms["nothing waits"]
    return [
        Bar("lateness p99, ms", steady["lateness_p99_ms"], "<=", _LATE_MS),
        Bar("lateness max, ms", steady["lateness_max_ms"], "<=", _LATE_MS),
        Bar("before it was due", whole["early"], "<=", 0),
        Bar("handled twice", whole["handled_twice"], "<=", 0),
        Bar("never handled", whole["never_handled"], "<=", 0),
        Bar("due at once: msg/s / quota, at least", steady["burst_over_quota"], ">=", 0.98),
        Bar("due at once: msg/s / quota, at most", steady["burst_over_quota"], "<=", 1.02),
        Bar("due at once: p99 wait of others, ms", steady["wait_p99_ms"], "<=", _LATE_MS),
        Bar("MB more while a million wait", whole["memory_more_mb"], "<=", 100 * size.waiting / 1e6),
        Bar("due at once, no quota: most in 1 s / quota of the other", free["free_over_quota"], ">", 2, "control"),
    ]
