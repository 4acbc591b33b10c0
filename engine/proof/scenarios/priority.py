"""`priority`: one group of 100 QPS, high messages at 0.8 and 1.2 of it, 5,000 low ones before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.proof.arms import Arm, product
from evenlane.engine.proof.figures import dwell, ratio
from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, config_for, tenant
from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenarios.trace_scenario import TraceScenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.load.trace import Trace
    from evenlane.engine.proof.scenario import Arms

_NAME = "acme"
_QPS, _LOW = 100, 5_000
_LEAD = 2  # s by which the low messages come before the first high one
_UNTIL = _LEAD + 120  # s
_SETTLED = 10  # s until the shares are read
_SERVICE = 10 * a.MILLISECOND
AGEING = 1 / 16


class PriorityScenario(TraceScenario):
    name = "priority"
    about = "one group of 100 QPS, high messages at 0.8 and 1.2 of it, 5,000 low ones waiting before them"
    broker_rounds = 1
    together = True
    sim_notes = ("waits (put to handler start) are compared: the handler's 10 ms would only hide a difference",)

    def arms(self, seed: int) -> dict[str, Arm]:
        made: dict[str, Arm] = {}
        for offered in (0.8, 1.2):
            load = self._load(seed, offered)
            alone = load.only_band(0)
            made[f"{offered} without low"] = Arm(alone, product, self._reader(alone))
            made[f"{offered} with low"] = Arm(load, product, self._reader(load))
            made[f"{offered} ageing"] = Arm(load.with_spec(_NAME, **self._spec(AGEING)), product, self._reader(load))
            made[f"{offered} one queue"] = Arm(load.in_one_band(), product, self._reader(load))
        return made

    def _load(self, seed: int, offered: float) -> Load:
        rng = a.stream_of(seed, "high", offered)
        low = (Arrival(at, 0, n % self.nodes, 2, _SERVICE) for n, at in enumerate(a.burst(self.count(_LOW), 0)))
        times = a.poisson(rng, offered * _QPS * self.nodes, self.ns(_LEAD), self.ns(_UNTIL))
        groups = a.chooser(rng, a.even(self.nodes))
        high = (Arrival(at, 0, next(groups) if self.nodes > 1 else 0, 0, _SERVICE) for at in times)
        cluster_config = config_for(self.nodes)
        return Load.of([tenant(_NAME, cluster_config, **self._spec())], [*low, *high], self.ns(_UNTIL), cluster_config)

    def _spec(self, ageing: float | None = None) -> dict[str, Any]:
        """A group of 100 QPS for each node."""
        return {"qps": _QPS * self.nodes, "groups": self.nodes, "ageing": ageing}

    def _reader(self, load: Load) -> Callable[[Trace], Figures]:
        """Read from `load` which messages are high: one arm puts all in one queue."""
        high, low = load.numbers(band=0), load.numbers(band=2)

        def read(trace: Trace) -> Figures:
            figures = dwell(trace, high)
            late = [n for n in (*high, *low) if trace.started[n] >= self.ns(_SETTLED)]
            share = sum(1 for n in late if load.band[n] == 2) / len(late) if late else None
            return {**figures, "low_share": share}

        return read

    def sim_bars(self, figures: Arms) -> list[Bar]:
        def p99(offered: float, arm: str) -> float | None:
            return ratio(figures[f"{offered} {arm}"]["wait_p99_ms"], figures[f"{offered} without low"]["wait_p99_ms"])

        low = figures["1.2 ageing"]["low_share"]
        off = None if low is None else abs(low / AGEING - 1)
        return [
            *(
                Bar(
                    f"high at {offered}: p99 wait, with / without low", p99(offered, "with low"), "<=", 1.25, slack=True
                )
                for offered in (0.8, 1.2)
            ),
            Bar("ageing 1/16, high at 1.2: how far low is off its share", off, "<=", 0.10),
            Bar("one queue for all, high at 0.8: p99 wait ratio", p99(0.8, "one queue"), ">", 1.25, "control"),
        ]
