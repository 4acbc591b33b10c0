"""The scenarios by name, in the order of docs/explanation/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios.delay.scenario import Delay
from evenlane.engine.proof.scenarios.hot import HotBurst, HotSlow
from evenlane.engine.proof.scenarios.live.scenario import Live
from evenlane.engine.proof.scenarios.priority import Priority
from evenlane.engine.proof.scenarios.push.scenario import Push
from evenlane.engine.proof.scenarios.rebalance.scenario import Rebalance
from evenlane.engine.proof.scenarios.reserve import Reserve
from evenlane.engine.proof.scenarios.scale.scenario import Scale
from evenlane.engine.proof.scenarios.shares import Shares
from evenlane.engine.proof.scenarios.skewed_quota import SkewedQuota

if TYPE_CHECKING:
    from evenlane.engine.proof.scenario import Scenario

SCENARIOS: dict[str, type[Scenario]] = {
    each.name: each
    for each in (
        HotBurst, HotSlow, Shares, Reserve, Priority, SkewedQuota, Scale, Rebalance, Live, Delay, Push,
    )
}  # fmt: skip
