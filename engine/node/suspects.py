"""Messages that were in flight when a process died: on this node at most one of them is handled at a time (X11).

So if a process dies again, its in-flight record names one suspect, and that one was the cause. Those whose turn comes
meanwhile are set aside until it has ended; all others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.index import Queue
    from engine.order import Place


class _Aside(NamedTuple):
    queue: Queue
    place: Place
    generation: int


class Suspects:
    """`again(queue, place, generation)` brings one back that was set aside."""

    def __init__(self, again: Callable[[Queue, Place, int], None]) -> None:
        self._again = again
        self._running: Place | None = None
        self._aside: list[_Aside] = []

    def begin(self, queue: Queue, place: Place) -> bool:
        """Whether it may be handled now; else it is set aside."""
        if self._running is not None and self._running != place:
            self._aside.append(_Aside(queue, place, place.lane.generation))
            return False
        self._running = place
        return True

    def of(self, queue: Queue) -> list[Place]:
        """Those of a queue that are set aside."""
        return [
            each.place for each in self._aside if each.queue is queue and each.place.lane.generation == each.generation
        ]

    def ended(self, place: Place) -> None:
        """It has ended, or won't be handled now."""
        if self._running != place:
            return
        self._running = None
        # All of them: whichever is chosen first goes. One by one, the others might wait for a message that expires.
        aside, self._aside = self._aside, []
        for each in reversed(aside):
            self._again(*each)
