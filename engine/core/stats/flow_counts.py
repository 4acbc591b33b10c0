"""The flow of messages through queues: what each count means, for every surface that shows it. Pure.

`FLOW_MEANINGS` has the definitions. docs/reference/figures.md is made from them, and page, `top`, `why`, metrics, meter
records and reports count by them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

FLOW_MEANINGS = MappingProxyType({
    "arrived": "messages that became due: first puts, delayed messages at their due time, and retries",
    "handled": "messages that a handler accepted: they are done",
    "retried": "failed attempts that another attempt follows",
    "dead": "messages that failed for good: they are dead letters, or a fallback took them",
    "expired": "messages that outlived their `ttl` before a handler began, also those that are kept as dead letters",
    "dropped": "messages that a person removed: `backlog purge`, `backlog cancel`",
    "failed": "`retried` + `dead`: attempts without success",
    "left": "`handled` + `failed` + `expired` + `dropped`: all that left their queue; a retry arrives again later",
})  # fmt: skip
"""The definition of each count, and of the two sums."""


class FlowCounts(NamedTuple):
    """Counts of messages since some moment. `FLOW_MEANINGS` defines each."""

    arrived: int = 0
    handled: int = 0
    retried: int = 0
    dead: int = 0
    expired: int = 0
    dropped: int = 0

    @property
    def failed(self) -> int:
        return self.retried + self.dead

    @property
    def left(self) -> int:
        return self.handled + self.retried + self.dead + self.expired + self.dropped
