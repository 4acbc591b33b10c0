"""How patient a producer's parts are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Seconds, but for `sweep_from`."""

    answer_s: float = 5.0
    """An answer to a put that takes longer won't come: its server or its leader has changed."""
    look_s: float = 0.5
    """A changed quota counts after so long."""
    sweep_from: int = 1_024
    """Topics, from which on the rate limiter drops those that are idle."""
    told_s: float = 5.0
    """A node's count of a backlog is fresh for so long: after that the owner has changed, or there is none."""
    counted_s: float = 1.0
    """And one of the store, which is asked no more often."""
    count_within_s: float = 2.0
    """A put doesn't wait longer to learn what waits."""
    create_again_s: float = 1.0
    """So long nobody asks again for a project that had no topic, or of an etcd that didn't answer."""


DEFAULT = Tuning()
