"""The scenarios by name, in the order of docs/scenarios.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.scenarios.delay import Delay
from evenlane.engine.scenarios.hot import HotBurst, HotSlow
from evenlane.engine.scenarios.live import Live
from evenlane.engine.scenarios.push import Push
from evenlane.engine.scenarios.rebalance import Rebalance
from evenlane.engine.scenarios.reserved import Reserve
from evenlane.engine.scenarios.scale import Scale
from evenlane.engine.scenarios.shares import Shares
from evenlane.engine.scenarios.skewed import SkewedQuota
from evenlane.engine.scenarios.strict import Priority

if TYPE_CHECKING:
    from evenlane.engine.scenarios.scenario import Scenario

SCENARIOS: dict[str, type[Scenario]] = {
    each.name: each
    for each in (
        HotBurst, HotSlow, Shares, Reserve, Priority, SkewedQuota, Scale, Rebalance, Live, Delay, Push,
    )
}  # fmt: skip
