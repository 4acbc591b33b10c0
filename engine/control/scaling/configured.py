"""Policy and bounds from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.config.scaling import parse_target
from evenlane.engine.control.scaling.policy import Bounds, Need, Rules

if TYPE_CHECKING:
    from evenlane.engine.base.config.scaling import ScalingSettings
    from evenlane.engine.control.scaling.policy import Policy


def policy_of(settings: ScalingSettings) -> Policy:
    if settings.scaling_policy == "need":
        assert settings.scaling_target is not None  # the settings are checked
        target = parse_target(settings.scaling_target)
        return Need(target.percent / 100, target.wait_s, settings.scaling_cpu)
    return Rules(settings.scaling_cpu, settings.scaling_projects_above, settings.scaling_projects_below)


def bounds_of(settings: ScalingSettings) -> Bounds:
    return Bounds(settings.scaling_min, settings.scaling_max, settings.scaling_rest)
