"""What a look of a moment doesn't say: whether a backlog grows, and which wait reasons last. Pure.

In most moments a queue that is served well has a message that waits for a slot, or for the next token of its quota;
and of two rates that are about equal, either may be the higher one. Neither is worth a word to a person. Overviews,
`why` and metrics decide by these functions.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

LASTING_S = 1.0
"""A reason of the moment is shown if the oldest message has waited for this time, in seconds."""
GROWING_S = 30.0
"""A backlog that has grown for this time, in seconds, will never be gone at its present rates."""

# They end as soon as a slot, a token, or the message before is there. The others are states, which hold from the first
# moment.
_OF_THE_MOMENT = frozenset({
    "quota", "concurrency", "headroom", "higher_priority", "fairness", "ordered", "handlers_busy",
})  # fmt: skip
_PARTS = 3  # of GROWING_S: shorter ones would show the noise of arrivals
_PART_NS = int(GROWING_S * 1_000_000_000) // _PARTS


def lasting_reasons(reasons: Mapping[str, T], oldest_s: float | None) -> dict[str, T]:
    """Return the reasons that are worth showing. `oldest_s` is how long the oldest message has waited, in seconds, None
    if it is unknown.
    """
    if oldest_s is None or oldest_s >= LASTING_S:
        return dict(reasons)
    return {reason: found for reason, found in reasons.items() if reason not in _OF_THE_MOMENT}


def is_stuck(leaving: float, oldest_s: float | None) -> bool:
    """Whether nothing has left for so long that the backlog counts as growing."""
    return leaving == 0.0 and oldest_s is not None and oldest_s >= GROWING_S


class BacklogTrend:
    """The size of one backlog at times at least ten seconds apart."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: deque[tuple[int, int]] = deque(maxlen=_PARTS + 1)

    def note(self, at: int, backlog: int) -> None:
        """Note the number of waiting messages at `at` (monotonic ns)."""
        if not backlog:
            self._sizes.clear()
        elif not self._sizes or at - self._sizes[-1][0] >= _PART_NS:
            self._sizes.append((at, backlog))

    @property
    def grows(self) -> bool:
        """Whether it has grown all the time over the last half minute: in each third of it."""
        sizes = [backlog for _, backlog in self._sizes]
        return len(sizes) > _PARTS and all(before < after for before, after in pairwise(sizes))
