"""The true state at the instant of the queries, from independent sources: the handlers' ledger, the puts, and etcd. The
expected metrics follow from it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from evenlane.ring.hashing import partition_of
from tests.ledger.entries import Entry
from tests.prometheus import load
from tests.prometheus.expect import ZERO, Span, about, total

PRIORITIES = ("high", "mid", "low")
WINDOW_S = 10  # of rates; metrics are about two seconds late
_LATE_S = 2.0
_MEASURED_S = 30.0  # over which a node measures the rates of its forecasts
_SECOND = 1_000_000_000
_FAILED = ("fail", "cancelled")

BACKLOGGED = ("hot", load.BULK, load.GOLD, "paused", "aged", "ranked", "ordered", "capped")
"""Projects with a backlog since the beginning."""

OWN_LIMIT = ("hot", "paused", "aged", "ranked", "ordered", "capped", "expiring", "holes")
"""Projects that wait for a limit of their own."""


class Node(NamedTuple):
    """A node. `address` is host and port; `epochs` has the epochs of its partitions."""

    name: str
    address: str
    pid: int
    leads: bool
    epochs: Mapping[int, int]


class Lane(NamedTuple):
    """The first and the last sequence of a lane, as NATS has them."""

    first: int
    last: int


class Seen(NamedTuple):
    """`now` is in ns since boot. `waited` is the time since the backlogs were complete, `putting` the time that it took
    to put them, both in seconds. `ledger` is keyed by event and project: each of hundreds of figures reads a few
    entries of it. `lanes` are keyed by partition.
    """

    now: int
    waited: float
    putting: float
    nodes: tuple[Node, ...]
    generation: int
    put: Mapping[tuple[str, str], int]
    ledger: Mapping[tuple[str, str], list[Entry]]
    lanes: Mapping[int, Lane]

    # ---- rates

    def _entries(
        self, what: str, projects: Iterable[str], priority: str | None, node: Node | None, seconds: float = WINDOW_S
    ) -> list[Entry]:
        """Entries of the window."""
        end = self.now - int(_LATE_S * _SECOND)
        return [
            each
            for project in set(projects)
            for each in self.ledger.get((what, project), ())
            if end - seconds * _SECOND <= each.at < end
            and priority in (None, each.priority)
            and (node is None or each.pid == node.pid)
        ]

    def handled(self, *projects: str, priority: str | None = None, node: Node | None = None) -> float:
        """Handled messages per second; of all projects if none is named."""
        return len(self._entries("ok", projects or load.TENANTS, priority, node)) / WINDOW_S

    def retried(self, *projects: str, priority: str | None = None) -> float:
        tried = [each for each in self._fails(priority) if not _last(each)]
        return len([each for each in tried if not projects or each.project in projects]) / WINDOW_S

    def dead(self, *projects: str, priority: str | None = None) -> float:
        last = [each for each in self._fails(priority) if _last(each)]
        return len([each for each in last if not projects or each.project in projects]) / WINDOW_S

    def expired(self) -> float:
        return load.EXPIRING_A_SECOND - self.handled("expiring")

    def started(self, *projects: str, priority: str | None = None, node: Node | None = None) -> float:
        """Ended attempts per second."""
        named = projects or load.TENANTS
        ended = sum(len(self._entries(what, named, priority, node)) for what in ("ok", *_FAILED))
        return ended / WINDOW_S

    def _fails(self, priority: str | None) -> list[Entry]:
        return [each for what in _FAILED for each in self._entries(what, load.TENANTS, priority, None)]

    # ---- waiting messages

    def backlog(self, project: str, priority: str, node: Node | None = None) -> Span:
        """Messages that were put and not begun, now or when the node last sampled."""
        put = self._put(project, priority, node)
        if not put:
            return ZERO
        if project == "holes":
            return about(load.HOLES, 0.25)
        if project not in BACKLOGGED:
            return Span(0.0, 2 * load.EXPIRING_A_SECOND)
        begun = sorted(
            each.at
            for each in self.ledger.get(("begin", project), ())
            if each.priority == priority
            and each.attempt == 1
            and (node is None or int(each.stream.rpartition("_")[2]) in node.epochs)
        )
        late = sum(1 for at in begun if at < self.now - (_LATE_S + 1) * _SECOND)
        soon = sum(1 for at in begun if at < self.now + _SECOND)
        return Span(max(0.0, put - soon - 2), put - late + 1)

    def waiting(self, project: str) -> Span:
        """The backlog of all priorities."""
        return total([self.backlog(project, band) for band in PRIORITIES])

    def backlogs(self, priority: str | None = None, node: Node | None = None) -> Span:
        """The backlog of all projects."""
        bands = PRIORITIES if priority is None else (priority,)
        return total([self.backlog(project, band, node) for project in load.TENANTS for band in bands])

    def _put(self, project: str, priority: str, node: Node | None) -> float:
        """Messages put for this node: an equal part for each group."""
        due = load.DELAYED if (project, priority) == ("delayed", "mid") else 0
        put = self.put.get((project, priority), 0) - due
        groups = 4 if project == "hot" else 1
        own = [group for group in range(groups) if node is None or self._partition(project, group) in node.epochs]
        return put * len(own) / groups

    @staticmethod
    def _partition(project: str, group: int) -> int:
        return partition_of(project, group, 4 if project == "hot" else 1, load.PARTITIONS, "hashed")

    def oldest(self, project: str) -> Span:
        if project == "aged":
            return Span(load.AGED_S, load.AGED_S + self.putting + self.waited + 1)
        if project == "holes":
            return about(load.HOLES / load.HOLES_QPS, 0.4)
        if project not in BACKLOGGED:
            return Span(0.0, 2.0)
        return Span(self.waited - 4, self.putting + self.waited + 2)

    def gone_in(self, project: str, priority: str) -> Span:
        """Seconds until the backlog is empty, on the slowest node, at the rate of the window or of the node's own
        measurement.
        """
        latest = [
            max(self._gone_in(project, priority, node, seconds) for node in self.nodes)
            for seconds in (WINDOW_S, min(_MEASURED_S, self.waited - _LATE_S))
        ]
        return Span(0.75 * min(latest) - 2, 1.33 * max(latest) + 2)

    def _gone_in(self, project: str, priority: str, node: Node, seconds: float) -> float:
        backlog = self.backlog(project, priority, node)
        handled = len(self._entries("ok", [project], None, node, seconds)) / seconds
        return (backlog.low + backlog.high) / 2 / handled if handled else 0.0

    # ---- slots

    @property
    def contended(self) -> Node:
        """The node on which two projects compete for slots."""
        return self.owner(load.BULK)

    def owner(self, project: str, group: int = 0) -> Node:
        return next(node for node in self.nodes if self._partition(project, group) in node.epochs)

    def slots(self, *projects: str) -> Span:
        """Slots that the projects use on average."""
        named = [each for each in projects if each in load.SLOW]
        return about(load.BULK_S * self.handled(*named) if named else 0.0, 0.2, 0.05)


def by_kind(entries: Iterable[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """Group entries by event and project."""
    kinds: dict[tuple[str, str], list[Entry]] = {}
    for each in entries:
        kinds.setdefault((each.what, each.project), []).append(each)
    return kinds


def _last(entry: Entry) -> bool:
    """Whether the message becomes a dead letter."""
    return entry.project == "rejected" or entry.attempt == 2
