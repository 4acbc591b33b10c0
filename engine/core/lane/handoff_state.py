"""Holds a lane's state beyond its ownership: the identity of its stream, and the handoff to its next owner. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.engine.core.ports import LaneState


_MOST_DONE = 40_000  # reported to the next owner: it must fit an etcd transaction; the rest is handled again


class StreamIdentity(NamedTuple):
    """The identity of a stream: its creation time, the highest message known of it, and the sequence up to which it was
    purged.
    """

    created: str
    high: int
    high_at: int
    purged: int

    def is_same(self, state: LaneState, high_at: int | None) -> bool:
        """Whether the leader's stream is this one.

        `high_at` is the arrival time of the message that has the sequence `high` now: 0 if it is gone, None if there
        can't be one.
        """
        if high_at and self.high_at and high_at != self.high_at:
            return False
        return is_same_stream(self.created, self.high, self.purged, state)


@dataclass
class HandoffState:
    """The state of a lane that its next owner needs.

    Invariants:
    - `running` has the messages that were started here in `generation` and haven't ended.
    - Until `over` is set, results still go to the settle log of this owner.
    - Afterwards `done` has the messages that ended but aren't durably settled, and `failed` those that failed and stay
      in their lane, with their mark (engine/core/lane/attempts.py); the log may lack both.

    `reset` (unix ns) is the subscription's last reset that the lane follows. `on_change` is called when a message ends
    after the cut-off, and when one fails or is returned.
    """

    generation: int
    seen: StreamIdentity
    running: set[int]
    done: list[int] = field(default_factory=list)
    failed: list[tuple[int, int]] = field(default_factory=list)
    over: bool = False
    reset: int = 0
    on_change: Callable[[], None] = lambda: None

    def is_running(self, sequence: int, generation: int) -> bool:
        """Whether a message of this generation was started before the handoff and hasn't ended."""
        return generation == self.generation and sequence in self.running

    def settle(self, sequence: int) -> bool:
        """End a message with a final outcome. True if the next owner must settle it."""
        self.running.discard(sequence)
        if not self.over:
            return False
        self.done.append(sequence)
        self.on_change()
        return True

    def mark_failed(self, sequence: int, mark: int) -> None:
        """End an attempt that failed; the message stays in its lane. The next owner learns of it from the log, or from
        this state.
        """
        if self.over:
            self.failed.append((sequence, mark))
        self.release(sequence)

    def release(self, sequence: int) -> None:
        """Return a message: it isn't handled here any more, and the next owner may start it."""
        self.running.discard(sequence)
        self.on_change()

    def cut_off(self, done: Iterable[int], failed: Iterable[tuple[int, int]]) -> None:
        """Stop writing to the log. `done` and `failed` are the results that the log may lack."""
        self.done = sorted(done)[:_MOST_DONE]
        self.failed += failed
        self.over = True


def is_same_stream(created: str, high: int, purged: int, state: LaneState) -> bool:
    # (the first sequence of a stream that never held a message is 0)
    return state.created == created and state.last >= high and (purged == 0 or state.first > purged)
