"""A node's load, as decisions about the number of nodes need it: slots in use, and slots that would be used. Pure.

A project whose heads mostly wait for slots (`COMPETES`) could use more of them: enough for its arrivals, and for the
messages that wait for slots to be gone within the recovery time, but no more than its quota and its `concurrency`
allow. Any other project wants what it has. So a backlog that waits for its own quota, for a resume or for an endpoint
adds nothing, however long it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.telemetry.tenants.fairness import COMPETES, Use
from evenlane.ring.membership.records import LoadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evenlane.engine.telemetry.tenants.backlog import QueueSample
    from evenlane.engine.telemetry.tenants.fairness import Usage
    from evenlane.quota.topics.topic import Topic

BLOCKED = frozenset({"quota", "paused", "endpoint", "concurrency", "no_handler"})
"""Wait reasons that no further node would end."""

_EVERY_NS = 5_000_000_000
_LEAST_S = 1.0  # seconds of looks; after fewer the load is unknown
_FEWEST = 0.5  # attempts that are assumed at least, as handlers may run for longer than a use is remembered


class Demand(NamedTuple):
    """A project's demand on one node. Rates are in messages per second, `used` and `most` in slots. `waiting` counts
    the messages that wait for slots; `handling_s` is the mean time of a handler.
    """

    used: float
    handling_s: float
    arriving: float = 0.0
    waiting: int = 0
    quota: float = math.inf
    most: float = math.inf


def wanted_slots(demand: Demand, recovery_s: float) -> float:
    """Return the number of slots that the project would use if slots were free."""
    if not demand.waiting:
        return demand.used
    rate = min(demand.arriving + demand.waiting / recovery_s, demand.quota)
    return max(demand.used, min(rate * demand.handling_s, demand.most))


class LoadMeter:
    """Measures the load of a node every 5 s. `load` is the latest result, None until there is one. `recovery_s` is the
    time within which messages that wait for slots should be gone.

    Invariant: `_waiting` counts messages that wait for slots by project, `_blocked` by reason those that wait for
    something else; both are those that the present round has seen so far.
    """

    def __init__(self, recovery_s: float) -> None:
        self.load: LoadRecord | None = None
        self._recovery_s = recovery_s
        self._measured = -_EVERY_NS
        self._waiting: dict[str, int] = {}
        self._blocked: dict[str, int] = {}

    def clear(self) -> None:
        self.load, self._measured = None, -_EVERY_NS
        self.begin()

    def begin(self) -> None:
        """Begin a round."""
        self._waiting, self._blocked = {}, {}

    def look(self, look: QueueSample) -> None:
        if look.reason in COMPETES:
            self._waiting[look.project] = self._waiting.get(look.project, 0) + look.backlog
        elif look.reason in BLOCKED:
            self._blocked[look.reason] = self._blocked.get(look.reason, 0) + look.backlog

    def measure(
        self,
        now: int,
        usage: Usage,
        topic_of: Callable[[str], Topic | None],
        part_of: Callable[[str], float],
    ) -> Iterator[None]:
        """Measure after a round, if it is time for it; `now` is monotonic ns. Two steps per project. `part_of` returns
        the node's part of a project's quota.
        """
        if now - self._measured < _EVERY_NS:
            return
        seen, uses = usage.sample(), dict[str, Use]()
        if seen.looked < _LEAST_S:
            return
        self._measured = now
        for project, (at, use) in seen.known.items():
            yield
            uses[project] = use.age_by(seen.at - at)
        got, attempts = math.fsum(use.got for use in uses.values()), math.fsum(use.attempts for use in uses.values())
        mean_s = got / max(attempts, _FEWEST)
        wanted = []
        for project, use in uses.items():
            yield
            waiting = self._waiting.get(project, 0) if use.waited > seen.looked / 2 else 0
            demand = _demand(use, seen.looked, waiting, mean_s, topic_of(project), part_of(project))
            wanted.append(wanted_slots(demand, self._recovery_s))
        self.load = LoadRecord(
            used=round(got / seen.looked, 3), wanted=round(math.fsum(wanted), 3), handling=round(mean_s, 6),
            blocked=self._blocked,
        )  # fmt: skip


def _demand(use: Use, looked: float, waiting: int, mean_s: float, topic: Topic | None, part: float) -> Demand:
    """Return a project's demand. `mean_s` is the mean handler time of the node, for a project that has had no slot."""
    handling_s = use.got / max(use.attempts, _FEWEST) if use.got else mean_s
    if topic is None:
        return Demand(use.got / looked, handling_s)
    pushed = topic.push.get("concurrency") if topic.push is not None else None
    most = min((float(cap) for cap in (topic.concurrency, pushed) if cap is not None), default=math.inf)
    return Demand(use.got / looked, handling_s, use.arrived / looked, waiting, topic.qps * part, most)
