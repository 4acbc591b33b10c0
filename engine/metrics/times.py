"""How long messages waited and how long their handlers took, noted as each attempt ends.

By priority as histograms, by queue as sums (`Queue.dwelt`, `Queue.ran`), from which a round over the queues makes those
of the tenants: so the hot path knows no labels. It only writes durations down; some hundreds are
added up at a time, so that the lists which they go into don't come between messages.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from engine.heads import since
from engine.metrics.histogram import BOUNDS, Histogram
from engine.schemas.waits import WAIT_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.index import Queue
    from engine.message import Message

_AT_ONCE = 256
_COARSE = (*(bisect_left(BOUNDS, bound) for bound in WAIT_BOUNDS), len(BOUNDS))  # of each fine bucket
_ANOTHER = -1  # of the same batch, whose time is noted already


class Times:
    """Of one process, by band; a batch is handled once. `offset` is how much the store's unix clock is ahead of our
    monotonic one, in ns.
    """

    def __init__(self, bands: int) -> None:
        self.offset = 0
        self._dwell = [Histogram() for _ in range(bands)]
        self._handling = [Histogram() for _ in range(bands)]
        self._noted: list[tuple[Queue, int, int, int]] = []

    @property
    def dwell(self) -> list[Histogram]:
        self.add_up()
        return self._dwell

    @property
    def handling(self) -> list[Histogram]:
        self.add_up()
        return self._handling

    def ended(self, messages: Sequence[Message], now: int) -> None:
        """An attempt at these, which one handler got together, has ended. `now` is monotonic ns."""
        first = messages[0]
        queue, started, entry = first._queue, first.started, first._entry  # noqa: SLF001 - saves property calls
        noted, at = self._noted, started + self.offset
        waited = at - (since(entry) if entry[0].later else entry[2])
        noted.append((queue, now - started, now - first.ran_to, waited))
        if len(messages) > 1:
            noted += [(queue, _ANOTHER, 0, at - since(message.entry)) for message in messages[1:]]
        if len(noted) >= _AT_ONCE:
            self.add_up()

    def running(self, messages: Sequence[Message], now: int) -> None:
        """They run still: their time until now counts already, or long ones would be seen only at their end."""
        first = messages[0]
        first.queue.ran += now - first.ran_to
        first.ran_to = now

    def add_up(self) -> None:
        """All that was noted: from now on queues and histograms have it."""
        dwells, handlings = self._dwell, self._handling
        for queue, took, ran, waited in self._noted:
            queue.attempts += 1
            queue.ran += ran
            if took != _ANOTHER:
                handling = handlings[queue.band]
                handling.counts[bisect_left(BOUNDS, took)] += 1
                handling.sum += took
            waits = waited if waited > 0 else 0  # the clocks of two servers  # noqa: FURB136 - a call costs as much again
            bucket = bisect_left(WAIT_BOUNDS, waits)
            dwell = dwells[queue.band]
            dwell.counts[_COARSE[bucket]] += 1
            dwell.sum += waits
            queue.dwelt += waits
            if (counted := queue.waits) is None:
                counted = queue.waits = {}
            counted[bucket] = counted.get(bucket, 0) + 1
            queue.longest = max(queue.longest, waits)
        self._noted.clear()
