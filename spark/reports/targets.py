"""Targets of waiting times, the same as those of alerts and dashboards (dashboards/prometheus)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_OLDEST_S = MappingProxyType({"high": 60.0, "mid": 600.0, "low": 3600.0})


class Targets(NamedTuple):
    """The longest time that the oldest message of a priority may wait, by name and for all others, and the time within
    which a backlog should be empty; all in seconds.
    """

    oldest_s: Mapping[str, float] = _OLDEST_S
    other_s: float = 600.0
    empty_s: float = 3600.0
