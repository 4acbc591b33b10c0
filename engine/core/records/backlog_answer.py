"""A node's answer about the backlog of a project, and the rates in it."""

from __future__ import annotations

import msgspec

from evenlane.quota.topics.topic import Topic  # noqa: TC001 - msgspec reads it


class Rates(msgspec.Struct, frozen=True):
    """Rates in msg/s of the counts that `engine.core.stats.flow_counts` defines, measured over `seconds`; 0 seconds if
    unknown. `failed` includes `dead`.
    """

    arriving: float = 0.0
    handled: float = 0.0
    failed: float = 0.0
    seconds: float = 0.0
    dead: float = 0.0
    expired: float = 0.0
    dropped: float = 0.0

    @property
    def leaving(self) -> float:
        """The rate at which messages leave their queues."""
        return self.taken + self.dropped

    @property
    def taken(self) -> float:
        """The rate at which they leave by themselves: a person who drops a backlog says nothing about the future."""
        return self.handled + self.failed + self.expired

    @property
    def moves(self) -> bool:
        return self.arriving > 0 or self.leaving > 0

    @property
    def is_known(self) -> bool:
        return self.seconds > 0


class Count(msgspec.Struct):
    """The number of groups that wait for a reason, and of messages in them; None: unknown."""

    groups: int = 0
    messages: int | None = 0


class QueueCount(msgspec.Struct):
    """The backlog of one priority. `oldest_s` is the longest wait, `next_due_s` the time until the next delayed message
    is due (s). `waited` is the time (s) that the heads of its queues have waited recently, summed up by reason.
    """

    waiting: int = 0
    in_flight: int = 0
    delayed: int = 0
    oldest_s: float | None = None
    next_due_s: float | None = None
    reasons: dict[str, Count] = {}
    waited: dict[str, float] = {}


class QueueProgress(msgspec.Struct, array_like=True, frozen=True):
    """How far a queue has come: docs/reference/positions.md defines the positions, which are sequences of its lane.
    They are None while the node doesn't know them; `next` also if no message waits.
    """

    priority: str
    group: int
    partition: int
    epoch: int
    waiting: int
    in_flight: int
    settled: int | None = None
    head: int | None = None
    next: int | None = None
    end: int | None = None


class NodeAnswer(msgspec.Struct):
    """One node's report of a project. `deepest` is the number of messages in its largest group; `waited_s` the period
    (s) that `waited` covers; `may_use` the rate (msg/s) of the node's part of the topic; `partitions` those that it
    serves (None: an older release doesn't say). `lost` is the project's topic if it is in effect on the node although
    etcd has lost it. `error` is the project's last one there; `failing_s` is for how long (s) every attempt has failed,
    None if one has succeeded, or none was made. `long_rates` are rates over a minute or more, if the node has counted
    for as long. `progress` is only there if it was asked for, and `left_out` queues aren't in it. `grows`: its backlog
    has grown all the time over the last half minute.
    """

    node: str
    queues: int = 0
    parts: dict[str, QueueCount] = {}
    deepest: int = 0
    rates: Rates = Rates()
    notes: list[str] = []
    waited_s: float = 0.0
    may_use: float | None = None
    partitions: list[int] | None = None
    lost: Topic | None = None
    error: str = ""
    failing_s: float | None = None
    long_rates: Rates | None = None
    progress: list[QueueProgress] = []
    left_out: int = 0
    grows: bool = False
