"""Targets of waiting times: how long the oldest message of a priority may wait. Pure.

The rules of Prometheus (dashboards/prometheus/targets.rules.yml) and the report use the same ones.
"""

from __future__ import annotations

from types import MappingProxyType

OLDEST_S = MappingProxyType({"high": 60.0, "mid": 600.0, "low": 3600.0})
"""Seconds by priority."""
OTHER_S = 600.0
"""Seconds for any other priority."""
EMPTY_S = 3600.0
"""A backlog should be gone within this time, in seconds."""


def target_of(priority: str) -> float:
    """Return the target of a priority, in seconds."""
    return OLDEST_S.get(priority, OTHER_S)
