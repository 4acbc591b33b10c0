"""The facts from which a project's status follows. Pure."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - a compiled NamedTuple needs it
from typing import NamedTuple

from evenlane.engine.core.records.backlog_answer import Rates  # noqa: TC001 - the same
from evenlane.engine.core.stats.forecast import UNKNOWN

_NOTED_S = 1.0


class Waiting(NamedTuple):
    """The backlog of one priority. Times in seconds: how long its oldest message has waited (None: unknown), and how
    long it may.
    """

    priority: str
    messages: int
    oldest_s: float | None
    target_s: float


class Failure(NamedTuple):
    """How a project fails. `error` is the last one, empty if unknown; `since`, in unix ns, is set if no attempt has
    succeeded since then.
    """

    error: str = ""
    since: int | None = None


class StatusFacts(NamedTuple):
    """What is known of a project, of all nodes together. `state` is its topic's, None if it has none; `qps` its quota
    in msg/s. `waiting` has a backlog per priority, from most to least urgent. `reasons` counts queues by wait reason.
    `unserved` counts the project's groups in partitions without an owner. `gone_s` is the forecast time until the
    backlog is empty, None if unknown; `never`: it grows. `stopped_by` names who paused the topic, and when. `slots` is
    the share of all slots that the project uses, None if unknown. `is_pushed`: an HTTP endpoint handles its messages.
    `late_since` is since when (unix ns) a message has been late, if
    known. `is_lost`: etcd may have lost the topic. `subscription` is the one that this is
    about, empty: the unnamed.
    """

    project: str
    env: str
    state: str | None
    qps: float | None
    waiting: tuple[Waiting, ...] = ()
    rates: Rates = UNKNOWN
    reasons: Mapping[str, int] = {}
    unserved: int = 0
    deleted: bool = False
    is_pushed: bool = False
    failure: Failure = Failure()
    gone_s: float | None = None
    never: bool = False
    stopped_by: str = ""
    slots: float | None = None
    is_lost: bool = False
    late_since: int | None = None
    subscription: str = ""

    @property
    def backlog(self) -> int:
        return sum([part.messages for part in self.waiting])

    @property
    def oldest_s(self) -> float:
        """How long the oldest message has waited, in seconds, as far as known."""
        return max([part.oldest_s for part in self.waiting if part.oldest_s is not None], default=0.0)

    @property
    def is_young(self) -> bool:
        """Whether all that waits is known to have come just now: nobody needs to know why it waits."""
        ages = [part.oldest_s for part in self.waiting if part.messages]
        return all(age is not None and age < _NOTED_S for age in ages)

    @property
    def latest(self) -> Waiting | None:
        """The priority that exceeds its target by the largest factor, None if none does."""
        late = [part for part in self.waiting if part.messages and part.oldest_s is not None]
        worst = max(late, key=_over_target, default=None)
        return worst if worst is not None and _over_target(worst) > 1 else None


def _over_target(part: Waiting) -> float:
    return (part.oldest_s or 0.0) / part.target_s
