"""What a node says of itself under `nodes/<id>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.clock import now_ns
from ring.records import NodeRecord

if TYPE_CHECKING:
    import asyncio

    from engine.node import Node
    from engine.records import Records
    from engine.vitals import Vitals

_SECOND = 1_000_000_000
_STORE_AWAY_NS = 5 * _SECOND  # without NATS: then others get the node's partitions, if they have it


class Report:
    """Of one term; `leaving` is set when the node is to end, `http` is the address it serves, if any."""

    def __init__(
        self, node: Node, vitals: Vitals, records: Records, leaving: asyncio.Event, http: str | None = None
    ) -> None:
        self._node, self._vitals, self._records, self._leaving, self._http = node, vitals, records, leaving, http
        self._store_away_since: int | None = None

    def fit(self) -> bool:
        """Whether it may own partitions."""
        return self._has_store() and not self._leaving.is_set()

    def record(self) -> NodeRecord:
        vitals, node = self._vitals, self._node
        return NodeRecord(
            host=vitals.host, pid=vitals.pid, version=vitals.version, http=self._http, cpu=round(vitals.cpu(), 3),
            projects=node.queues.projects, in_flight=len(node.in_flight),
            at=round(node.store.now() / _SECOND, 3), store=self._has_store(), leaving=self._leaving.is_set(),
            passed_over=self._records.passed_over,
        )  # fmt: skip

    def _has_store(self) -> bool:
        """Whether it can reach NATS, or could a moment ago."""
        if self._node.store.connected:
            self._store_away_since = None
        elif self._store_away_since is None:
            self._store_away_since = now_ns()
        return self._store_away_since is None or now_ns() - self._store_away_since < _STORE_AWAY_NS
