"""The scenarios by name, in the order of docs/scenarios.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scenarios.delay import Delay
from engine.scenarios.hot import HotBurst, HotSlow
from engine.scenarios.live import Live
from engine.scenarios.push import Push
from engine.scenarios.rebalance import Rebalance
from engine.scenarios.reserved import Reserve
from engine.scenarios.scale import Scale
from engine.scenarios.shares import Shares
from engine.scenarios.skewed import SkewedQuota
from engine.scenarios.strict import Priority

if TYPE_CHECKING:
    from engine.scenarios.scenario import Scenario

SCENARIOS: dict[str, type[Scenario]] = {
    each.name: each
    for each in (
        HotBurst, HotSlow, Shares, Reserve, Priority, SkewedQuota, Scale, Rebalance, Live, Delay, Push,
    )
}  # fmt: skip
