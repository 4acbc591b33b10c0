"""Tuning constants of a producer's parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProducerTuning:
    """In seconds, except `sweep_from`."""

    answer_s: float = 5.0
    """An answer that takes longer won't come: the put's server or leader has changed."""
    look_s: float = 0.5
    """Time until a changed quota takes effect."""
    sweep_from: int = 1_024
    """Number of topics from which the rate limiter drops idle ones."""
    reported_within_s: float = 5.0
    """Time for which a node's backlog count is fresh. After it, the owner has changed or there is none."""
    counted_s: float = 1.0
    """Time for which the store's backlog count is fresh; the store is asked no more often."""
    count_within_s: float = 2.0
    """Longest wait of a put for its topic's backlog."""
    create_again_s: float = 1.0
    """Pause between two requests for a project without a topic, or to an etcd that didn't answer."""


DEFAULT = ProducerTuning()
