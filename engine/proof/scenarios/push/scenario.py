"""`push`: 50 customers with an endpoint each; one of them is slow, huge, flapping, silent and dead in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.proof.arms import Arm, fifo, product
from evenlane.engine.proof.figures import dwell, filter_since, ratio
from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, tenant
from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenarios.push.endpoints import EndpointPhase, EndpointPlan
from evenlane.engine.proof.scenarios.push.runner import PushBroker
from evenlane.engine.proof.scenarios.trace_scenario import TraceScenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.load.trace import Trace
    from evenlane.engine.proof.runners.one_node import Broker
    from evenlane.engine.proof.scenario import Arms

BAD = "bad"
_VICTIMS, _GROUPS = 49, 4
_RATE = 4.0  # msg/s of each victim
_BACKLOG = 5_000  # messages for the bad endpoint: more than it ever accepts
_BAD_AT, _WELL, _PHASE = 5.0, 2.0, 6.0  # s; it works at first, so that the backlog's arrival isn't measured
# Long failures come last, as their pauses grow.
_KINDS = ("slow", "huge", "flapping", "silent", "dead")
_UNTIL = _BAD_AT + _WELL + _PHASE * len(_KINDS)
_SERVICE = 45 * a.MILLISECOND
_AT_ONCE = a.SECOND
_SLOW, _TIMEOUT = 1.5, 2.0  # s
# Each customer has a rate, as a platform sells it; at that rate a slow endpoint needs three times the slots.
_SPEC: dict[str, Any] = {"qps": 100, "groups": _GROUPS, "max_attempts": 1_000}


class PushScenario(TraceScenario):
    name = "push"
    about = "50 customers' endpoints; one is slow, huge, flapping, silent and dead in turn, with 5,000 messages waiting"
    sim_notes = (
        "the 49 are measured from the bad one's backlog on; dwell is put to the endpoint's answer",
        "percentiles are of the served: read them together with the share served",
    )

    spreads = False

    def arms(self, seed: int) -> dict[str, Arm]:
        load = self._load(seed)
        return {
            "without bad": Arm(load.without(BAD), product, self._read),
            "with bad": Arm(load, product, self._read),
            "plain pool": Arm(load, fifo, self._read, prefetched=True),
        }

    def broker(self, url: str) -> Broker:
        service = _SERVICE / a.SECOND
        good, bad = EndpointPlan(_VICTIMS, service), EndpointPlan(1, service, _SLOW, tuple(self._phases()))
        return PushBroker(url, self.slots, good, bad, _TIMEOUT)

    def _phases(self) -> Iterator[EndpointPhase]:
        for number, kind in enumerate(_KINDS):
            start = (_BAD_AT + _WELL + number * _PHASE) * self.scale
            yield EndpointPhase(kind, start, start + _PHASE * self.scale)

    def _load(self, seed: int) -> Load:
        tenants = [tenant(f"customer-{n:02d}", **_SPEC) for n in range(_VICTIMS)] + [tenant(BAD, **_SPEC)]
        return Load.of(tenants, [*self._victims(seed), *self._backlog()], self.ns(_UNTIL))

    def _victims(self, seed: int) -> Iterator[Arrival]:
        for number in range(_VICTIMS):
            rng = a.stream_of(seed, "customer", number)
            groups = a.chooser(rng, a.even(_GROUPS))
            for at in a.poisson(rng, _RATE, 0, self.ns(_UNTIL)):
                yield Arrival(at, number, next(groups), 1, _SERVICE)

    def _backlog(self) -> Iterator[Arrival]:
        """The bad one's backlog. On the simulator each message takes the whole timeout, as if the endpoint were always
        silent, and the node never paused it.
        """
        groups = a.in_turn(_GROUPS)
        for at in a.burst(self.count(_BACKLOG), self.ns(_BAD_AT)):
            yield Arrival(at, _VICTIMS, next(groups), 1, int(_TIMEOUT * a.SECOND))

    def _read(self, trace: Trace) -> Figures:
        bad = trace.load.numbers(tenants=[BAD])
        victims = filter_since(trace, trace.load.numbers(but=BAD), self.ns(_BAD_AT))
        at_once = [n for n in victims if trace.was_handled(n) and trace.ended[n] - trace.put[n] <= _AT_ONCE]
        return {
            **dwell(trace, victims),
            "served_in_1s": len(at_once) / len(victims),
            **self._by_phase(trace),
            "bad_served": float(sum(map(trace.was_handled, bad))),
        }

    def _by_phase(self, trace: Trace) -> Figures:
        """The victims' p99 dwell of the messages that arrived in each phase."""
        found: Figures = {}
        for phase in self._phases():
            start, end = int(phase.start * a.SECOND), int(phase.end * a.SECOND)
            came = [n for n in filter_since(trace, trace.load.numbers(but=BAD), start) if trace.load.at[n] < end]
            found[f"{phase.kind}_p99_ms"] = dwell(trace, came)["dwell_p99_ms"]
        return found

    def sim_bars(self, figures: Arms) -> list[Bar]:
        without, hot, control = figures["without bad"], figures["with bad"], figures["plain pool"]
        p99 = ratio(hot["dwell_p99_ms"], without["dwell_p99_ms"])
        return [
            Bar("the 49: p99 dwell, with / without bad", p99, "<=", 1.3, slack=True),
            Bar("the 49: served within 1 s", hot["served_in_1s"], ">=", 0.99),
            *self._phase_bars(without, hot),
            Bar("plain pool: the 49 served within 1 s", control["served_in_1s"], "<=", 0.5, "control"),
        ]

    def _phase_bars(self, without: Figures, hot: Figures) -> Iterator[Bar]:
        """The bars of a phase. It has some 1,200 messages of the 49 victims, so twelve of them determine its p99."""
        for kind in _KINDS:
            p99 = ratio(hot[f"{kind}_p99_ms"], without[f"{kind}_p99_ms"])
            yield Bar(f"{kind}: p99 dwell, with / without bad", p99, "<=", 2)
