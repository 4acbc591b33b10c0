"""Decides which settled messages a stream keeps for a while, so that subscriptions can get them again. Pure."""

from __future__ import annotations

from typing import NamedTuple

from evenlane.engine.core.lane.settled_set import SettledSet

_PARTS = 8
_LONGEST_PAUSE = 60_000_000_000  # ns


class Retention(NamedTuple):
    """Settled messages are kept for `age` ns: those of a lane since they were stored, those of a delay stream since
    they were settled. While a stream has more than `most_bytes`, the oldest of them go earlier.
    """

    age: int
    most_bytes: int

    @property
    def pause(self) -> int:
        """The time (ns) between two looks at what has become old enough."""
        return min(self.age // (2 * _PARTS), _LONGEST_PAUSE)

    def count_excess(self, messages: int, size: int) -> int:
        """About how many of a stream's `messages`, which have `size` bytes together, are too many."""
        excess = size - self.most_bytes
        return -(-excess * messages // size) if excess > 0 else 0


class SettledHistory:
    """Remembers which messages of a stream were settled at a time, to tell which have been settled for long.

    Invariant: `_taken` has the time (ns) and the content of snapshots, oldest first, `age / 8` or more apart. At most
    the first one is older than `age`.
    """

    def __init__(self) -> None:
        self._taken: list[tuple[int, SettledSet]] = []

    def find_aged(self, settled: SettledSet, now: int, age: int) -> SettledSet:
        """The messages that have been in `settled` for `age` ns, and up to an eighth of it more."""
        taken = self._taken
        if not taken or now - taken[-1][0] >= age // _PARTS:
            taken.append((now, settled.copy()))
        while len(taken) > 1 and now - taken[1][0] >= age:
            del taken[0]
        at, aged = taken[0]
        return aged if now - at >= age else SettledSet()
