"""Formats figures for people: `-` is none, `?` is unknown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.core.stats.forecast import figure, format_spoken

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEARLY = 0.999
UNKNOWN, NOTHING = "?", "-"


def count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def rate(per_second: float | None) -> str:
    """Format a rate: 0, 0.04, 7.5, 120."""
    if per_second is None:
        return UNKNOWN
    digits = 0 if per_second >= 99.95 else 1 if per_second >= 0.95 else 2
    text = f"{per_second:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def age(figures: Mapping[str, Any]) -> str:
    """Format how long the oldest message has waited."""
    if not figures["backlog"]:
        return NOTHING
    seconds = figures["oldest_seconds"]
    return UNKNOWN if seconds is None else short(seconds)


def format_gone(figures: Mapping[str, Any]) -> str:
    """Format the forecast in how much time the backlog is empty."""
    if not figures["backlog"]:
        return NOTHING
    if figures["never_gone"]:
        return "never"
    seconds = figures["gone_in_seconds"]
    return UNKNOWN if seconds is None else short(seconds)


def quota(tenant: Mapping[str, Any]) -> str:
    """Format the topic's QPS, preceded by what it may take now if that is less; or why there is none."""
    state, qps, now = tenant["state"], tenant["qps"], tenant["quota_now"]
    if state is None or qps is None:
        return "no topic"
    if state == "paused":
        return "deleted" if tenant["deleted"] else "paused"
    part = f"{rate(now)}/" if now is not None and now < _NEARLY * qps else ""
    return f"{part}{figure(qps)}{' draining' if state == 'draining' else ''}"


def share(part: float | None) -> str:
    return UNKNOWN if part is None else f"{part:.0%}"


def seconds(value: float | None) -> str:
    return UNKNOWN if value is None else short(value)


def short(value: float) -> str:
    """Format seconds, no finer than the sampling interval justifies."""
    return format_spoken(value) if value >= 0.005 else "0s"
