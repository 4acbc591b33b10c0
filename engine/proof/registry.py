"""The scenarios by name, in the order of docs/explanation/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios.delay.scenario import DelayScenario
from evenlane.engine.proof.scenarios.hot import HotBurst, HotSlow
from evenlane.engine.proof.scenarios.live.scenario import LiveScenario
from evenlane.engine.proof.scenarios.priority import PriorityScenario
from evenlane.engine.proof.scenarios.push.scenario import PushScenario
from evenlane.engine.proof.scenarios.rebalance.scenario import RebalanceScenario
from evenlane.engine.proof.scenarios.reserve import ReserveScenario
from evenlane.engine.proof.scenarios.scale.scenario import ScaleScenario
from evenlane.engine.proof.scenarios.shares import SharesScenario
from evenlane.engine.proof.scenarios.skewed_quota import SkewedQuota

if TYPE_CHECKING:
    from evenlane.engine.proof.scenario import Scenario

SCENARIOS: dict[str, type[Scenario]] = {
    each.name: each
    for each in (
        HotBurst, HotSlow, SharesScenario, ReserveScenario, PriorityScenario, SkewedQuota, ScaleScenario,
        RebalanceScenario, LiveScenario, DelayScenario, PushScenario,
    )
}  # fmt: skip
