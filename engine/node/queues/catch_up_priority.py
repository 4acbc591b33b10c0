"""Makes lower priorities wait while a backlog comes in that was taken over (E5): it may hold more urgent messages."""

from __future__ import annotations

import asyncio
import contextlib
from operator import attrgetter
from typing import TYPE_CHECKING

from evenlane.engine.core.wire.subjects import UnroutableSubject, queue_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenlane.engine.core.queue.queue import Queue


def by_band(queues: Iterable[Queue]) -> list[Queue]:
    """The most urgent first."""
    return sorted(queues, key=attrgetter("band"))


def most_urgent(subjects: Iterable[bytes], bands: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Of each project's group, the most urgent band among these subjects of a lane; what names no queue is left out."""
    found: dict[tuple[str, int], int] = {}
    for subject in subjects:
        with contextlib.suppress(UnroutableSubject):
            project, group, band = queue_named(subject, "lanes", bands)
            found[project, group] = min(band, found.get((project, group), band))
    return found


class CatchUpPriority:
    """Of one partition. `on_release(queue)` is called for each deferred queue that need not wait any longer; `bands`
    gives the band of a priority.
    """

    def __init__(self, on_release: Callable[[Queue], None], bands: Mapping[str, int], patience_s: float) -> None:
        self._on_release, self._bands, self._patience_s = on_release, bands, patience_s
        self._first: dict[tuple[str, int], int] = {}  # by group, the most urgent band that may still come in
        self._any = False  # of any group anything may
        self._waiting: dict[Queue, None] = {}  # of the lane, or of its later stream
        self._patience: asyncio.TimerHandle | None = None

    # ---- what comes in

    def expect(self, subjects: Iterable[bytes]) -> None:
        """Of these some is still to come in."""
        self._first = most_urgent(subjects, self._bands)

    def expect_anything(self) -> None:
        """It isn't known what is to come in: all lower bands wait."""
        self._any = True

    def narrow(self, subjects: Iterable[bytes]) -> None:
        """Now it is known: only of these something may still come in. Whoever waits for nothing of it goes."""
        if self._any:
            self._any = False
            self.expect(subjects)
            self._release()

    def begin(self) -> None:
        """It begins to come in; a second later nobody waits for it any more."""
        self._patience = asyncio.get_running_loop().call_later(self._patience_s, self.end)

    def end(self) -> None:
        """All of it has come in, or never will."""
        self.give_up()
        self._any, self._first = False, {}
        self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for queue in by_band(waiting):
            self._on_release(queue)

    def give_up(self) -> None:
        """No more comes in for now, and nobody is told."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # ---- who waits

    def must_wait(self, queue: Queue) -> bool:
        """Whether something more urgent of its group may still come in."""
        return queue.band > (0 if self._any else self._first.get((queue.project, queue.group), queue.band))

    def defer(self, queue: Queue) -> bool:
        """Whether it must wait; if so, `on_release` is called with it later."""
        waits = self.must_wait(queue)
        if waits:
            self._waiting[queue] = None
        return waits
