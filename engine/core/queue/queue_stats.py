"""A queue's counters and times since the node started."""

from __future__ import annotations


class QueueStats:
    """Totals of one queue: messages, outcomes, and times in ns. engine/core/stats/flow_counts.py defines the counts; a
    backlog that the node takes over counts in `arrived`, too.

    `published` has the values that were last published as metrics. The last three are for reports
    (engine/telemetry/metering): `waits` counts messages by their wait until their handler began, in the buckets of
    engine/core/stats/wait_histogram.py; `longest` is the longest of these waits since the last record, ns; `waited`
    has, by reason, the time that messages waited, summed over the messages, ns. `waits` and `waited` are None until
    there is a value, since most queues never have one.
    """

    __slots__ = (
        "arrived",
        "attempts",
        "dead",
        "dropped",
        "dwelt",
        "expired",
        "handled",
        "longest",
        "missing",
        "published",
        "ran",
        "retried",
        "waited",
        "waits",
    )

    def __init__(self) -> None:
        self.arrived = self.handled = self.retried = self.dead = self.expired = self.dropped = self.missing = 0
        self.attempts = self.dwelt = self.ran = 0
        self.published: tuple[int, ...] = ()
        self.waits: dict[int, int] | None = None
        self.longest = 0
        self.waited: dict[str, float] | None = None

    @property
    def flow(self) -> tuple[int, int, int, int, int, int]:
        """The counts in the order of `FlowCounts`."""
        return self.arrived, self.handled, self.retried, self.dead, self.expired, self.dropped
