"""The tuning of a node: how it paces takeovers, settle logs and quota shares."""

from __future__ import annotations

from dataclasses import dataclass

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class NodeTuning:
    """Values that tests change; nodes use the defaults."""

    tail_beyond: int = 5_000
    """Messages. A larger backlog gets a catch-up, with a tail feed at the same time."""
    small: int = 1_000
    """Messages. A smaller backlog is delivered before its subjects could be read."""
    for_each: int = 500
    """Messages. One queue is read ahead per this many messages of backlog, so that reading ahead costs a fraction of
    the catch-up.
    """
    backlog_wait_s: float = 1.0
    """How long lower bands wait for a backlog to be delivered."""
    pinned_for: int = 5 * _SECOND
    """ns. A watermark that hasn't moved for this long is pinned."""
    shares_after_s: float = 0.05
    """Partitions that are acquired together arrive within this time."""
    shares_at_once: int = 400
    """Projects per turn of the event loop: some milliseconds."""


DEFAULT = NodeTuning()
