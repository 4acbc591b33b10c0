"""`hot-burst` and `hot-slow`: one tenant of a hundred floods the node with 50,000 messages, fast or slow ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from evenlane.engine.proof.arms import Arm, evenly, fifo, product, without_headroom
from evenlane.engine.proof.figures import dwell, filter_since, ratio, utilisation
from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, config_for, tenant
from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenarios.trace_scenario import TraceScenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.proof.arms import Make
    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.load.trace import Trace
    from evenlane.engine.proof.scenario import Arms

HOT = "hot"
_VICTIMS, _GROUPS = 99, 10
_RATE = 5.0  # msg/s of each victim
_BURST, _BURST_AT, _UNTIL = 50_000, 10, 40  # number of messages; s; s
_SERVICE = 45 * a.MILLISECOND
_COMES_IN = 10  # s, enough to store and feed the burst even if that takes the whole machine
# More than the whole node can do, with equal weights: fairness must save the victims, not a quota.
_SPEC: dict[str, Any] = {"burst": 50, "weight": 1}
_QPS = 1500


class _Hot(TraceScenario):
    sim_notes = (
        "victims are measured from the burst on; dwell is put to handler end, wait is put to handler start",
        "later: of what was put from 10 s after the burst on, which has come in by then",
        "percentiles are of the served: read them together with the share served",
    )
    hot_service: ClassVar[int]
    most_p99_ratio: ClassVar[float]

    def arms(self, seed: int) -> dict[str, Arm]:
        load = self._load(seed)
        return {
            "without hot": self._arm(load.without(HOT), product),
            "with hot": self._arm(load, product),
            "fifo": replace(self._arm(load, fifo), prefetched=True),
        }

    def _arm(self, load: Load, make: Make) -> Arm:
        return Arm(load, make, self._read, aim=evenly)

    def _load(self, seed: int) -> Load:
        cluster_config, spec = config_for(self.nodes), {**_SPEC, "qps": _QPS * self.nodes, "groups": self._groups}
        tenants = [
            tenant(name, cluster_config, **spec) for name in (*(f"victim-{n:02d}" for n in range(_VICTIMS)), HOT)
        ]
        return Load.of(tenants, [*self._victims(seed), *self._burst()], self.ns(_UNTIL), cluster_config)

    @property
    def _groups(self) -> int:
        return _GROUPS * self.nodes

    def _victims(self, seed: int) -> Iterator[Arrival]:
        for number in range(_VICTIMS):
            rng = a.stream_of(seed, "victim", number)
            groups = a.chooser(rng, a.even(self._groups))
            for at in a.poisson(rng, _RATE * self.nodes, 0, self.ns(_UNTIL)):
                yield Arrival(at, number, next(groups), 1, _SERVICE)

    def _burst(self) -> Iterator[Arrival]:
        groups = a.in_turn(self._groups)
        for at in a.burst(self.count(_BURST), self.ns(_BURST_AT)):
            yield Arrival(at, _VICTIMS, next(groups), 1, self.hot_service)

    def _read(self, trace: Trace) -> Figures:
        start, until = self.ns(_BURST_AT), self.ns(_UNTIL)
        hot = trace.load.numbers(tenants=[HOT])
        victims = trace.load.numbers(but=HOT)
        later = filter_since(trace, victims, start + self.ns(_COMES_IN))
        return {
            **dwell(trace, filter_since(trace, victims, start)),
            "dwell_p99_later_ms": dwell(trace, later)["dwell_p99_ms"],
            "hot_served": float(sum(map(trace.was_handled, hot))),
            "utilisation": utilisation(trace, self.all_slots, start, until),
        }

    def sim_bars(self, figures: Arms) -> list[Bar]:
        without, hot, control = figures["without hot"], figures["with hot"], figures["fifo"]
        p99 = ratio(hot["dwell_p99_ms"], without["dwell_p99_ms"])
        return [
            Bar("victims' p99 dwell, with / without hot", p99, "<=", self.most_p99_ratio, slack=True),
            Bar("victims served", hot["served"], ">=", 0.99),
            *self._more_bars(figures),
            Bar("FIFO: victims served", control["served"], "<=", 0.05, "control"),
        ]

    def _more_bars(self, figures: Arms) -> list[Bar]:
        raise NotImplementedError


class HotBurst(_Hot):
    name = "hot-burst"
    about = "99 tenants of 5 msg/s, and 50,000 messages of a hundredth at once"
    hot_service = _SERVICE
    most_p99_ratio = 1.3

    def _more_bars(self, figures: Arms) -> list[Bar]:
        return [Bar("utilisation while hot is backlogged", figures["with hot"]["utilisation"], ">=", 0.75)]


class HotSlow(_Hot):
    name = "hot-slow"
    about = "the same, and the hot tenant's handlers take 500 ms"
    hot_service = 500 * a.MILLISECOND
    most_p99_ratio = 1.5

    def arms(self, seed: int) -> dict[str, Arm]:
        return {**super().arms(seed), "no headroom": self._arm(self._load(seed), without_headroom)}

    def _more_bars(self, figures: Arms) -> list[Bar]:
        p99 = ratio(figures["no headroom"]["dwell_p99_ms"], figures["without hot"]["dwell_p99_ms"])
        return [Bar("headroom cap off: victims' p99 dwell, with / without hot", p99, ">=", 5, "control")]
