"""The scenarios by name, in the order of docs/explanation/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios.delay import Delay
from evenlane.engine.proof.scenarios.hot import HotBurst, HotSlow
from evenlane.engine.proof.scenarios.live import Live
from evenlane.engine.proof.scenarios.push import Push
from evenlane.engine.proof.scenarios.rebalance import Rebalance
from evenlane.engine.proof.scenarios.reserved import Reserve
from evenlane.engine.proof.scenarios.scale import Scale
from evenlane.engine.proof.scenarios.shares import Shares
from evenlane.engine.proof.scenarios.skewed import SkewedQuota
from evenlane.engine.proof.scenarios.strict import Priority

if TYPE_CHECKING:
    from evenlane.engine.proof.scenarios.scenario import Scenario

SCENARIOS: dict[str, type[Scenario]] = {
    each.name: each
    for each in (
        HotBurst, HotSlow, Shares, Reserve, Priority, SkewedQuota, Scale, Rebalance, Live, Delay, Push,
    )
}  # fmt: skip
