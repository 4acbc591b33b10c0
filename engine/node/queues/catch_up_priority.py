"""Makes lower priorities wait during a catch-up (E5): the backlog may hold more urgent messages."""

from __future__ import annotations

import asyncio
import contextlib
from operator import attrgetter
from typing import TYPE_CHECKING

from evenlane.engine.core.wire.subjects import UnroutableSubject, parse_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenlane.engine.core.queue.queue import Queue


def by_band(queues: Iterable[Queue]) -> list[Queue]:
    """The queues, most urgent first."""
    return sorted(queues, key=attrgetter("band"))


def most_urgent(subjects: Iterable[bytes], bands: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """The most urgent band of each group among these subjects of a lane; unroutable subjects are skipped."""
    found: dict[tuple[str, int], int] = {}
    for subject in subjects:
        with contextlib.suppress(UnroutableSubject):
            project, group, band = parse_queue(subject, "lanes", bands)
            found[project, group] = min(band, found.get((project, group), band))
    return found


class CatchUpPriority:
    """The catch-up priority of one partition. `on_release(queue)` is called for each deferred queue that need not wait
    any longer; `bands` maps priorities to bands.

    Invariant: `_first` has the most urgent band per group that may still be delivered; while `_any` is set, every band
    of every group may. `_waiting` has the queues that `defer` deferred, of the lane and of its delay stream.
    """

    def __init__(self, on_release: Callable[[Queue], None], bands: Mapping[str, int], wait_s: float) -> None:
        self._on_release, self._bands, self._wait_s = on_release, bands, wait_s
        self._first: dict[tuple[str, int], int] = {}
        self._any = False
        self._waiting: dict[Queue, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    # ---- progress of the catch-up

    def expect(self, subjects: Iterable[bytes]) -> None:
        """Messages of these subjects are still to be delivered."""
        self._first = most_urgent(subjects, self._bands)

    def expect_anything(self) -> None:
        """The content of the backlog is unknown: all lower bands wait."""
        self._any = True

    def narrow(self, subjects: Iterable[bytes]) -> None:
        """The content has become known: only these subjects may still be delivered. Queues that needn't wait for them
        are released.
        """
        if self._any:
            self._any = False
            self.expect(subjects)
            self._release()

    def begin(self) -> None:
        """The delivery begins: from now on, lower bands wait for at most `wait_s`."""
        self._timer = asyncio.get_running_loop().call_later(self._wait_s, self.end)

    def end(self) -> None:
        """The delivery is complete, or will never be: release all queues."""
        self.give_up()
        self._any, self._first = False, {}
        self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for queue in by_band(waiting):
            self._on_release(queue)

    def give_up(self) -> None:
        """Stop the timer without releasing queues: the delivery is suspended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- queues that wait

    def must_wait(self, queue: Queue) -> bool:
        """Whether a more urgent message of the queue's group may still be delivered."""
        if not self._first and not self._any:
            return False  # (the usual case, and faster)
        return queue.band > (0 if self._any else self._first.get((queue.project, queue.group), queue.band))

    def defer(self, queue: Queue) -> bool:
        """Whether the queue must wait; if so, `on_release` is called with it later."""
        waits = self.must_wait(queue)
        if waits:
            self._waiting[queue] = None
        return waits
