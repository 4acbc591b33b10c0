"""Words of the sentences about a project's status. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from evenlane.engine.core.stats.forecast import figure, format_spoken
from evenlane.engine.core.wire.reason_codes import INDIRECT

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECOND = 1_000_000_000


def main_reason(reasons: Mapping[str, int]) -> str | None:
    """Return the reason of most queues; an indirect one only if there is no other."""
    return min(reasons, key=lambda reason: (reason in INDIRECT, -reasons[reason], reason), default=None)


def format_rate(rate: float) -> str:
    """Format messages per second: 0.04/s, 7.5/s, 120/s."""
    return f"{figure(round(rate, 0 if rate >= 100 else 1 if rate >= 1 else 2))}/s"


def format_part(share: float) -> str:
    """Format a share: 3 %, 0.4 %; neither 0 % nor 100 % unless it is."""
    percent = 100 * share
    if percent >= 99.5:
        return "100 %" if percent >= 99.95 else f"{min(percent, 99.9):.1f} %"
    return f"{percent:.0f} %" if percent >= 0.95 else f"{max(percent, 0.01):.1g} %"


def format_waiting(messages: int, oldest_s: float = 0.0) -> str:
    """Format a backlog: "1,422 wait, the oldest for 12m"."""
    many = "1 waits" if messages == 1 else f"{messages:,} wait" if messages else "nothing waits"
    return f"{many}, the oldest for {format_spoken(oldest_s)}" if messages and oldest_s >= 1 else many


def moment(at: int) -> str:
    """Format unix ns: "28 Nov, 02:14 UTC"."""
    return f"{datetime.fromtimestamp(at / _SECOND, UTC):%d %b, %H:%M} UTC"
