"""`skewed-quota`: a topic of 100 QPS whose keys fall almost all into one of its ten groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scenarios import arrivals as a
from engine.scenarios.figures import dwell, worst_window
from engine.scenarios.load import Arrival, Load, tenant
from engine.scenarios.report import Bar
from engine.scenarios.traced import Arm, Traced, in_turn, product

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.scenarios.figures import Figures
    from engine.scenarios.trace import Trace

_NAME = "acme"
_QPS, _GROUPS, _OFFERED = 100, 10, 95
_HOT_SHARE = 0.8
_UNTIL = 60  # s
_SERVICE = 45 * a.MILLISECOND


class SkewedQuota(Traced):
    name = "skewed-quota"
    about = "a topic of 100 QPS and 10 groups, 95 msg/s offered, 80 % of them in one group"
    broker_rounds = 1
    together = True

    def arms(self, seed: int) -> dict[str, Arm]:
        load = self._load(seed)
        split = load.with_wish(_NAME, qps=_QPS, groups=_GROUPS, borrow=False)
        return {
            "borrowing": Arm(load, product, _read),
            "each group its tenth": Arm(split, product, _read),
            "no quota": Arm(load, in_turn, _read),
        }

    def _load(self, seed: int) -> Load:
        rng = a.stream_of(seed, "skewed")
        shares = [_HOT_SHARE, *((1 - _HOT_SHARE) * share for share in a.zipf(_GROUPS - 1))]
        groups = a.chooser(rng, shares)
        come = (Arrival(at, 0, next(groups), 1, _SERVICE) for at in a.poisson(rng, _OFFERED, 0, self.ns(_UNTIL)))
        return Load.of([tenant(_NAME, qps=_QPS, groups=_GROUPS)], come, self.ns(_UNTIL))

    def bars(self, figures: Mapping[str, Figures]) -> list[Bar]:
        product_, split, free = (figures[arm] for arm in ("borrowing", "each group its tenth", "no quota"))
        return [
            Bar("served of 95 msg/s", product_["served"], ">=", 0.98),
            Bar("worst 1 s window / quota", product_["worst_1s_over_quota"], "<=", 1.10),
            Bar("each group its tenth: served", split["served"], "<", 0.98, "control"),
            Bar("no quota: worst 1 s window / quota", free["worst_1s_over_quota"], ">", 1.10, "control"),
        ]

    def notes(self) -> list[str]:
        return ["on one node; the part with 300 QPS over 3 nodes comes with quotas over several nodes"]


def _read(trace: Trace) -> Figures:
    numbers = range(len(trace.load))
    return {**dwell(trace, numbers), "worst_1s_over_quota": worst_window(trace, numbers) / _QPS}
