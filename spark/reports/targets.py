"""Targets of waiting times, the same as those of alerts and dashboards (dashboards/prometheus)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.stats.wait_targets import EMPTY_S, OLDEST_S, OTHER_S

if TYPE_CHECKING:
    from collections.abc import Mapping


class Targets(NamedTuple):
    """The longest time that the oldest message of a priority may wait, by name and for all others, and the time within
    which a backlog should be empty; all in seconds.
    """

    oldest_s: Mapping[str, float] = OLDEST_S
    other_s: float = OTHER_S
    empty_s: float = EMPTY_S
