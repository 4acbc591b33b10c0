"""`shares`: the shares of ten tenants of different weight while all have a backlog. It also measures the gain from
splitting a topic into groups, and what the rules for many tenants cost a tenant that is alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.proof.arms import Arm, product, round_robin
from evenlane.engine.proof.figures import busy, ratio, shares, shares_on_nodes, utilisation
from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, config_for, tenant
from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenarios.trace_scenario import BacklogScenario

if TYPE_CHECKING:
    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.load.load import LoadTenant
    from evenlane.engine.proof.load.trace import Trace
    from evenlane.engine.proof.scenario import Arms

_WEIGHTS = (1, 1, 1, 2, 2, 2, 3, 3, 4, 4)
_BACKLOG = 5_000  # per tenant; the heaviest needs 4 / 23 of some 24,000
_SERVICE = 45 * a.MILLISECOND
_QPS = 1500

SPLITTER = "splitter"
_PARTS, _OF_PART = 800, 26
_OTHERS, _OF_OTHER = 19, 1_300

_OF_LONE = 25_000  # 50 slots handle 24,400 in the time


class SharesScenario(BacklogScenario):
    name = "shares"
    about = "ten tenants of weight 1 to 4 with a backlog; one with 800 groups against nineteen with 10; one alone"
    groups_each = 10
    sim_notes = ("a share is of the slot time used in 20 s, against max-min fairness by weight",)

    def arms(self, seed: int) -> dict[str, Arm]:  # noqa: ARG002 - nothing is left to chance here
        weights, split, alone = self._weights(), self._split(), self._alone()
        return {
            "weights": Arm(weights, product, self._read_weights),
            "weights, round robin": Arm(weights, round_robin, self._read_weights),
            "800 groups": Arm(split, product, self._read_split),
            "800 groups, round robin": Arm(split, round_robin, self._read_split),
            "alone": Arm(alone, product, self._read_alone),
            "alone, no rules": Arm(alone, round_robin, self._read_alone),
        }

    def _weights(self) -> Load:
        tenants = [self._tenant(f"tenant-{n}-weight-{w}", weight=w) for n, w in enumerate(_WEIGHTS)]
        come = [
            Arrival(0, number, message % self.groups, 1, _SERVICE)
            for message in range(self.backlog(_BACKLOG))
            for number in range(len(tenants))
        ]
        return self.load(tenants, come)

    def _split(self) -> Load:
        """The others come between the splitter's messages, so that the order of arrival favours none of them."""
        parts = _PARTS * self.nodes
        splitter = self._tenant(SPLITTER, groups=parts)
        others = [self._tenant(f"other-{n:02d}") for n in range(_OTHERS)]
        of_splitter, of_other = self.backlog(_PARTS * _OF_PART), self.backlog(_OF_OTHER)
        come = [(n / of_splitter, Arrival(0, 0, n % parts, 1, _SERVICE)) for n in range(of_splitter)]
        come += [
            (n / of_other, Arrival(0, number, n % self.groups, 1, _SERVICE))
            for number in range(1, _OTHERS + 1)
            for n in range(of_other)
        ]
        come.sort(key=lambda each: each[0])
        return self.load([splitter, *others], [each for _order, each in come])

    def _alone(self) -> Load:
        come = [Arrival(0, 0, n % self.groups, 1, _SERVICE) for n in range(self.backlog(_OF_LONE))]
        return self.load([self._tenant("lone")], come)

    def _tenant(self, name: str, **spec: Any) -> LoadTenant:
        """A tenant whose quota is out of reach; `spec` overrides the common settings."""
        usual = {"qps": _QPS * self.nodes, "groups": self.groups, "burst": 50, "weight": 1}
        return tenant(name, config_for(self.nodes), **{**usual, **spec})

    def _read_alone(self, trace: Trace) -> Figures:
        start, end = self.span
        return {"utilisation": utilisation(trace, self.all_slots, start, end)}

    def _read_weights(self, trace: Trace) -> Figures:
        start, end = self.span
        got = shares(trace, start, end)
        return {
            "min_share": min(shares_on_nodes(trace, start, end)),
            "min_share_in_all": min(got),
            "max_share_in_all": max(got),
            "utilisation": utilisation(trace, self.all_slots, start, end),
        }

    def _read_split(self, trace: Trace) -> Figures:
        start, end = self.span
        numbers = trace.load.numbers(tenants=[SPLITTER])
        hot = busy(trace, start, end, numbers) * len(trace.load.tenants) / busy(trace, start, end)
        got = shares(trace, start, end)
        return {
            "hot_over_fair": hot,
            "min_share": min(got),
            "utilisation": utilisation(trace, self.all_slots, start, end),
        }

    def sim_bars(self, figures: Arms) -> list[Bar]:
        weights, blind = figures["weights"]["min_share"], figures["weights, round robin"]["min_share"]
        split, control = figures["800 groups"], figures["800 groups, round robin"]
        alone, free = figures["alone"]["utilisation"], figures["alone, no rules"]["utilisation"]
        blind_least = 15 if self.nodes == 1 else 10  # where a node has few of the others' groups, they end early
        return [
            Bar("weights: least got / fair share", weights, ">=", 0.98),
            Bar("800 groups: hot / fair share", split["hot_over_fair"], "<=", 1.02, slack=True),
            Bar("alone: rate / with all rules off", ratio(alone, free), ">=", 0.98),
            Bar("round robin: least got / fair share by weight", blind, "<", 0.98, "control"),
            Bar("round robin: hot / fair share", control["hot_over_fair"], ">=", blind_least, "control"),
        ]
