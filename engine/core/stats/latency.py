"""Measures how long messages waited and how long their handlers took, as each attempt ends.

Each priority has histograms, and each queue has sums (`QueueStats.dwelt`, `QueueStats.ran`), from which a pass over the
queues computes the sums of tenants. The hot path therefore needs no labels; it only notes durations. A few hundred
durations are added up at a time, so that the lists that hold them don't compete for the CPU cache with each message.
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
_COARSE = (*(bisect_left(BOUNDS, bound) for bound in WAIT_BOUNDS), len(BOUNDS))  # coarse bucket of each fine one
_ANOTHER = -1  # a further message of a batch, whose time is noted already
_SHORTEST = BOUNDS[0]  # most handlers take less: the first bucket


class LatencyStats:
    """The latencies of one process, by band; a batch counts as handled once. `offset` (ns) is the lead of the store's
    unix clock over our monotonic one.

    Invariant: durations in `_noted` aren't in any histogram or queue yet; `add_up` moves them there.
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

    def note_end(self, message: Message, now: int) -> None:
        """Note the end of an attempt. `now` is monotonic ns."""
        started, entry = message.started, message._entry  # noqa: SLF001 - saves property calls
        waited = started + self.offset - (since(entry) if entry[0].later else entry[2])
        noted = self._noted
        noted.append((message._queue, now - started, now - message.ran_to, waited))  # noqa: SLF001
        if len(noted) >= _AT_ONCE:
            self.add_up()

    def note_batch_end(self, messages: Sequence[Message], now: int) -> None:
        """Note the end of an attempt at several messages that one handler received together."""
        first = messages[0]
        queue, at = first.queue, first.started + self.offset
        self.note_end(first, now)
        self._noted += [(queue, _ANOTHER, 0, at - since(message.entry)) for message in messages[1:]]

    def note_running(self, messages: Sequence[Message], now: int) -> None:
        """Count the time of a running handler up to now; otherwise long ones would show only at their end."""
        first = messages[0]
        first.queue.stats.ran += now - first.ran_to
        first.ran_to = now

    def add_up(self) -> None:
        """Move all noted durations into queues and histograms."""
        dwells, handlings = self._dwell, self._handling
        for queue, took, ran, waited in self._noted:
            stats = queue.stats
            stats.attempts += 1
            stats.ran += ran
            band = queue.band
            if took != _ANOTHER:
                handling = handlings[band]
                handling.counts[bisect_left(BOUNDS, took) if took > _SHORTEST else 0] += 1
                handling.sum += took
            dwell = dwells[band]
            if waited > 0:  # (it may be negative, as the clocks of two servers differ)
                bucket = bisect_left(WAIT_BOUNDS, waited)
                dwell.sum += waited
                stats.dwelt += waited
                if waited > stats.longest:  # noqa: PLR1730 - a call costs more than all else here
                    stats.longest = waited
            else:
                bucket = 0
            dwell.counts[_COARSE[bucket]] += 1
            counted = stats.waits
            if counted is None:
                stats.waits = {bucket: 1}
            elif bucket in counted:
                counted[bucket] += 1
            else:
                counted[bucket] = 1
        self._noted.clear()
