"""What is known of a lane beyond its owner: how its stream is recognised, and what its next owner has to know. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.engine.core.ports import LaneState


_MOST_DONE = 40_000  # told to the next owner, so that it fits a transaction in etcd; the rest is handled again


class StreamIdentity(NamedTuple):
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
class HandoffState:
    """What the next owner has to know of a lane: sequences that are still being handled here, those that have ended but
    aren't durably settled, and those that have failed and stay where they are, with their mark
    (engine/core/lane/attempts.py), as the log may not have it. `on_change` is called when one ends after the lane was
    cut off.
    """

    generation: int
    seen: StreamIdentity
    running: set[int]
    done: list[int] = field(default_factory=list)
    failed: list[tuple[int, int]] = field(default_factory=list)
    over: bool = False
    on_change: Callable[[], None] = lambda: None

    def runs(self, sequence: int, generation: int) -> bool:
        """Whether it was begun before the hand-over, in this generation, and hasn't ended."""
        return generation == self.generation and sequence in self.running

    def settled(self, sequence: int) -> bool:
        """One of them has ended for good; whether that is for the next owner to settle."""
        self.running.discard(sequence)
        if not self.over:
            return False
        self.done.append(sequence)
        self.on_change()
        return True

    def has_failed(self, sequence: int, mark: int) -> None:
        """One of them has failed, and stays where it is: it is for the next owner to hear, by the log or from here."""
        if self.over:
            self.failed.append((sequence, mark))
        self.untouched(sequence)

    def untouched(self, sequence: int) -> None:
        """One of them isn't handled any more: the next owner may have it."""
        self.running.discard(sequence)
        self.on_change()

    def cut_off(self, done: Iterable[int], failed: Iterable[tuple[int, int]]) -> None:
        """The log is told nothing more: these have ended, or failed, and it may not have heard."""
        self.done = sorted(done)[:_MOST_DONE]
        self.failed += failed
        self.over = True


def same_stream(created: str, high: int, purged: int, state: LaneState) -> bool:
    # (a stream that never held anything says that its first sequence is 0)
    return state.created == created and state.last >= high and (purged == 0 or state.first > purged)
