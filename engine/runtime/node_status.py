"""Status record of a node under `nodes/<id>`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.records import settle_record
from evenlane.ring.membership.records import ETCD_RECORDS, FORMAT, SETTLE_LOG, NodeRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.process_stats import ProcessStats
    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.node.node import Node
    from evenlane.ring.membership.records import LoadRecord

_SECOND = 1_000_000_000
_EVERY_S = 0.5
_STORE_AWAY_NS = 5 * _SECOND  # after this time without NATS, the node's partitions go to nodes that reach it


class NodeStatus:
    """The record of a node in one session. `leaving` is set when the node is asked to end; `handlers` are its routes as
    text, `http` is the address it serves, if any. `load()` returns the load last measured.

    The record is built in the node's event loop every 0.5 s after `start`, and read by the thread that keeps the lease.
    A blocked node therefore writes its state as of the last time its loop ran, except for its troubles and `leaving`.
    """

    def __init__(
        self,
        node: Node,
        process_stats: ProcessStats,
        records: RecordReader,
        troubles: Troubles,
        unreadable: UnreadableRecords,
        leaving: asyncio.Event,
        handlers: str,
        load: Callable[[], LoadRecord | None],
        settings: Settings,
        http: str | None = None,
    ) -> None:
        self._node, self._process_stats, self._records, self._leaving, self._http = (
            node,
            process_stats,
            records,
            leaving,
            http,
        )
        self._load, self._slots, self._scaling = load, settings.concurrency, settings.scaling
        self._zone = settings.zone or ""
        self._troubles, self._unreadable, self._handlers = troubles, unreadable, handlers
        self._store_away_since: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._made = self._make()

    def start(self) -> None:
        self._made = self._make()
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self.start)

    def stop(self) -> None:
        """Stop. No effect if never started."""
        if self._timer is not None:
            self._timer.cancel()

    def record(self) -> NodeRecord:
        """Return the present record. Thread-safe."""
        return replace(
            self._made, leaving=self._leaving.is_set(), troubles=self._troubles.current(),
            unreadable=self._unreadable.known,
        )  # fmt: skip

    def _make(self) -> NodeRecord:
        stats, node = self._process_stats, self._node
        return NodeRecord(
            host=stats.host, pid=stats.pid, version=stats.version, http=self._http, cpu=round(stats.cpu(), 3),
            cores=round(stats.cores, 3), projects=node.queues.projects, in_flight=len(node.in_flight),
            at=round(node.store.now() / _SECOND, 3), store=self._has_store(),
            passed_over=self._records.skipped, handlers=self._handlers, zone=self._zone,
            slots=self._slots, load=self._load(), scaling=self._scaling,
            reads={ETCD_RECORDS: FORMAT, SETTLE_LOG: settle_record.SHARED_VERSION},
        )  # fmt: skip

    def _has_store(self) -> bool:
        """Whether the node can reach NATS, or could less than 5 s ago."""
        if self._node.store.is_connected:
            self._store_away_since = None
        elif self._store_away_since is None:
            self._store_away_since = now_ns()
        return self._store_away_since is None or now_ns() - self._store_away_since < _STORE_AWAY_NS
