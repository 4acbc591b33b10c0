"""How long messages waited and how long their handlers took, noted as each attempt ends.

By priority as histograms, by queue as sums (`Queue.dwelt`, `Queue.ran`), from which a round over the queues makes those
of the tenants: so the hot path knows no labels. It only writes durations down; some hundreds are
added up at a time, so that the lists which they go into don't come between messages.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from evenlane.engine.core.queue.queue_head import since
from evenlane.engine.core.stats.histogram import BOUNDS, Histogram
from evenlane.engine.core.stats.wait_histogram import WAIT_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.queue import Queue

_AT_ONCE = 256
_COARSE = (*(bisect_left(BOUNDS, bound) for bound in WAIT_BOUNDS), len(BOUNDS))  # of each fine bucket
_ANOTHER = -1  # of the same batch, whose time is noted already
_SHORTEST = BOUNDS[0]  # most handlers take less: the first bucket


class LatencyStats:
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

    def ended(self, message: Message, now: int) -> None:
        """An attempt at this one has ended. `now` is monotonic ns."""
        started, entry = message.started, message._entry  # noqa: SLF001 - saves property calls
        waited = started + self.offset - (since(entry) if entry[0].later else entry[2])
        noted = self._noted
        noted.append((message._queue, now - started, now - message.ran_to, waited))  # noqa: SLF001
        if len(noted) >= _AT_ONCE:
            self.add_up()

    def batch_ended(self, messages: Sequence[Message], now: int) -> None:
        """The same of several that one handler got together."""
        first = messages[0]
        queue, at = first.queue, first.started + self.offset
        self.ended(first, now)
        self._noted += [(queue, _ANOTHER, 0, at - since(message.entry)) for message in messages[1:]]

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
            band = queue.band
            if took != _ANOTHER:
                handling = handlings[band]
                handling.counts[bisect_left(BOUNDS, took) if took > _SHORTEST else 0] += 1
                handling.sum += took
            dwell = dwells[band]
            if waited > 0:  # (less by the clocks of two servers)
                bucket = bisect_left(WAIT_BOUNDS, waited)
                dwell.sum += waited
                queue.dwelt += waited
                if waited > queue.longest:  # noqa: PLR1730 - a call costs more than all else here
                    queue.longest = waited
            else:
                bucket = 0
            dwell.counts[_COARSE[bucket]] += 1
            counted = queue.waits
            if counted is None:
                queue.waits = {bucket: 1}
            elif bucket in counted:
                counted[bucket] += 1
            else:
                counted[bucket] = 1
        self._noted.clear()
