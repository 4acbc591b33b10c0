"""How a node paces its take-overs, its settle logs and its shares."""

from __future__ import annotations

from dataclasses import dataclass

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Tuning:
    tail_beyond: int = 5_000
    """Messages of backlog from which a tail feed runs beside the catch-up."""
    small: int = 1_000
    """Messages of backlog that come in so soon that it isn't asked whose they are."""
    for_each: int = 500
    """Messages of backlog for each queue that is read ahead, so that this costs a fraction of the catch-up."""
    patience_s: float = 1.0
    """For a backlog to come in, before lower bands go nevertheless."""
    pinned_for: int = 5 * _SECOND
    """ns that a watermark stays before it is pinned."""
    shares_after_s: float = 0.05
    """Other partitions that come with this one come in the same moment."""
    shares_at_once: int = 400
    """Projects in one turn of the loop: some milliseconds."""


DEFAULT = Tuning()
