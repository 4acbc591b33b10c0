"""What is known of a lane beyond its owner: how its stream is recognised, and what its next owner has to know. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.ports import LaneState


class Seen(NamedTuple):
    """A stream as it was fed from: its creation, the highest message that came in, and what was purged."""

    created: str
    high: int
    high_at: int
    purged: int

    def same(self, state: LaneState, high_at: int | None) -> bool:
        """Whether the leader's stream is this one; `high_at` is the arrival time of the message that stands at
        `high` now: 0 if it is gone, None if there can't be one.
        """
        if high_at and self.high_at and high_at != self.high_at:
            return False
        return same_stream(self.created, self.high, self.purged, state)


@dataclass
class HandOver:
    """What the next owner has to know of a lane: sequences that are still being handled here, those that have ended but
    aren't durably settled, and those that have failed and stay where they are, with their mark (engine/marks.py), as
    the log may not have it. `on_change` is called when one ends after the lane was cut off.
    """

    generation: int
    seen: Seen
    running: set[int]
    done: list[int] = field(default_factory=list)
    failed: list[tuple[int, int]] = field(default_factory=list)
    over: bool = False
    on_change: Callable[[], None] = lambda: None

    @property
    def tells(self) -> bool:
        """Whether there is anything that the next owner has to know."""
        return bool(self.running or self.done or self.failed)


def same_stream(created: str, high: int, purged: int, state: LaneState) -> bool:
    # (a stream that never held anything says that its first sequence is 0)
    return state.created == created and state.last >= high and (purged == 0 or state.first > purged)
