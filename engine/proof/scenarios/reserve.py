"""`reserve`: more work than the node can do, and a topic of little weight that has been promised a minimum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.proof.arms import Arm, evenly, product, round_robin
from evenlane.engine.proof.figures import ratio, shares, shares_on_nodes, utilisation
from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, config_for, tenant
from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenarios.trace_scenario import BacklogScenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.load.load import LoadTenant
    from evenlane.engine.proof.load.trace import Trace
    from evenlane.engine.proof.scenario import Arms

RESERVED = "reserved"
_RESERVE = 300.0  # msg/s; by its weight it would get an eleventh of some 1,110
_WEIGHTS = (1, 2, 3, 4)  # weights of the other tenants; its own is 1
# Per node, and out of reach, even the share of one of many nodes. Proportional to the weight, as by default: then
# a plan that balances QPS balances weights.
_QPS_OF_WEIGHT = 1500
# If all ended in the same nanosecond, slots would be given out in rounds, and rounding errors would add up.
_SERVICE = (40 * a.MILLISECOND, 50 * a.MILLISECOND)
_BACKLOG, _OF_RESERVED = 2_800, 8_000  # per unit of weight: a tenth of some 24,000 is needed; 22 s of the reserve
_OF_LONE = 25_000  # 50 slots handle 24,400 in the time


class ReserveScenario(BacklogScenario):
    name = "reserve"
    about = "five tenants with a backlog; one of weight 1 among 11 has a reserve of 300 msg/s, 0.27 of what is there"
    groups_each = 60
    sim_notes = (
        "a share is of the slot time that the reserved tenant left in 20 s, against max-min fairness by weight",
    )

    def arms(self, seed: int) -> dict[str, Arm]:
        others = {number: self.backlog(_BACKLOG * weight) for number, weight in enumerate(_WEIGHTS, start=1)}
        load = self._load(seed, {0: self.backlog(_OF_RESERVED), **others})
        arms = {
            "reserve": load,
            "no reserve": load.with_spec(RESERVED, **self._spec(1, 0)),
            "reserve not used": load.without(RESERVED),
        }
        alone = self._load(seed, {0: self.backlog(_OF_LONE)})
        return {
            **{name: Arm(each, product, self._read) for name, each in arms.items()},
            "reserved alone": Arm(alone, product, self._read, aim=evenly),
            "no rules": Arm(load, round_robin, self._read),
        }

    def _load(self, seed: int, backlogs: Mapping[int, int]) -> Load:
        """Return the tenants' messages in turn; `backlogs` by the tenant's number, 0 is the one with the reserve."""
        rng = a.stream_of(seed, "service")

        def come() -> Iterable[Arrival]:
            for message in range(max(backlogs.values())):
                for number in (number for number, count in backlogs.items() if message < count):
                    yield Arrival(0, number, message % self.groups, 1, rng.randint(*_SERVICE))

        return self.load(self._tenants(), come())

    def _tenants(self) -> list[LoadTenant]:
        cluster_config = config_for(self.nodes)
        others = [tenant(f"weight-{weight}", cluster_config, **self._spec(weight)) for weight in _WEIGHTS]
        return [tenant(RESERVED, cluster_config, **self._spec(1, _RESERVE)), *others]

    def _spec(self, weight: float, reserve: float = 0) -> dict[str, Any]:
        rates = {"qps": _QPS_OF_WEIGHT * weight * self.nodes, "reserve": reserve * self.nodes}
        return {**rates, "groups": self.groups, "burst": 50, "weight": weight}

    def _read(self, trace: Trace) -> Figures:
        start, end = self.span
        own = [n for n in trace.load.numbers(tenants=[RESERVED]) if start <= trace.started[n] < end]
        rate = len(own) * a.SECOND / (end - start)
        return {
            "reserved_msg_s": rate,
            "reserved_over_reserve": rate / (_RESERVE * self.nodes),
            "others_min_share": min(shares_on_nodes(trace, start, end, but=RESERVED), default=None),
            "others_min_share_in_all": min(shares(trace, start, end, but=RESERVED), default=None),
            "utilisation": utilisation(trace, self.all_slots, start, end),
        }

    def sim_bars(self, figures: Arms) -> list[Bar]:
        full, control = figures["reserve"], figures["no reserve"]
        idle, alone = figures["reserve not used"], figures["reserved alone"]
        most = figures["no rules"]["utilisation"]
        rest, what = "least got / fair share", "utilisation / with all rules off"
        return [
            Bar("got / reserve", full["reserved_over_reserve"], ">=", 0.98),
            Bar(f"the others' {rest} of the rest", full["others_min_share"], ">=", 0.98),
            Bar(what, ratio(full["utilisation"], most), ">=", 0.98),
            Bar(f"reserve not used: {what}", ratio(idle["utilisation"], most), ">=", 0.98),
            Bar(f"reserve not used: {rest}", idle["others_min_share"], ">=", 0.98),
            Bar(f"reserved alone: {what}", ratio(alone["utilisation"], most), ">=", 0.98),
            Bar("no reserve: got / reserve", control["reserved_over_reserve"], "<", 0.5, "control"),
        ]
