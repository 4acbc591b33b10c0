"""Puts of a load's messages, on a separate connection, as a producer has."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.core.wire import headers as h
from evenlane.engine.proof.broker.environment import open_store
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncIterator, Mapping

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.store.jetstream.store import JetStreamStore


class Puts:
    def __init__(
        self, store: JetStreamStore, env: str, cluster_config: ClusterConfig, spreads: Mapping[str, int]
    ) -> None:
        self._store, self._env, self._cluster_config = store, env, cluster_config
        self._spreads = spreads
        self._subjects: dict[tuple[str, int, int], str] = {}

    def put(self, project: str, group: int, band: int, number: int, body: bytes) -> Future[Receipt]:
        """Send a message, with an id derived from its number; the future resolves with its acknowledgement."""
        key = (project, group, band)
        subject = self._subjects.get(key)
        if subject is None:
            cluster = self._cluster_config
            partition = partition_of(project, group, self._spreads[project], cluster.partitions, cluster.layout)
            priority = cluster.priorities[band]
            subject = self._subjects[key] = names.lane_subject(self._env, partition, project, group, priority)
        return self._store.put(subject, h.encode({h.ID: f"{project}:{number}"}), body)


@asynccontextmanager
async def open_puts(
    url: str, env: str, cluster_config: ClusterConfig, spreads: Mapping[str, int]
) -> AsyncIterator[Puts]:
    """Connect for a block. `spreads` are those of the projects. The streams must exist. Raises Unreachable."""
    async with open_store(url, env) as store:
        yield Puts(store, env, cluster_config, spreads)
