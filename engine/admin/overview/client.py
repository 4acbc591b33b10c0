"""Client of the overview: asks all nodes, and merges their answers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from evenlane.engine.admin.overview.document import document
from evenlane.engine.admin.overview.messages import NodeOverview, subject
from evenlane.engine.admin.scatter import NodesClient, scatter
from evenlane.engine.base.background_work import low_priority
from evenlane.engine.cluster.cluster_snapshot import read_config, read_snapshot
from evenlane.engine.control.topics.pause_authors import PauseAuthors
from evenlane.engine.core.wire.decode_error import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.cluster_snapshot import ClusterSnapshot
    from evenlane.engine.core.request_bus import RequestBus

_log = structlog.get_logger(__name__)

TIMEOUT_S = 1.0  # a node has its answer ready: a slower one counts as silent


class OverviewClient(NodesClient):
    """Requests overviews."""

    timeout_s = TIMEOUT_S
    _cluster_config: ClusterConfig | None = None  # constant for an environment
    _pause_authors: PauseAuthors | None = None

    async def overview(self) -> dict[str, Any]:
        """Return the state and figures of all nodes: see `evenlane.engine.admin.overview.document`. Nodes that don't
        answer within `timeout_s` seconds are named in its notes.

        Raises EvenlaneError if there is no such environment; Unreachable; CoordinationError.
        """
        if self._cluster_config is None:
            self._cluster_config = await read_config(self._etcd, self._env)
        cluster = await read_snapshot(self._etcd, self._cluster, self._cluster_config)
        bodies: list[bytes] = []
        if cluster.nodes:
            async with self._line() as line:
                bodies = await gather(line, self._cluster, cluster.nodes.keys(), self.timeout_s)
        answers = await asyncio.to_thread(read_answers, bodies, len(cluster.priorities))
        paused_by = await self._authors().read(find_paused(answers))
        return await asyncio.to_thread(overview, cluster, answers, time.time_ns(), paused_by)

    def _authors(self) -> PauseAuthors:
        if self._pause_authors is None:
            self._pause_authors = PauseAuthors(self._etcd, self._env)
        return self._pause_authors


async def gather(
    connection: RequestBus,
    cluster: str,
    nodes: Collection[str],
    timeout: float,  # noqa: ASYNC109 - answers until then are returned
) -> list[bytes]:
    """Return the raw answers of these nodes that arrive within `timeout` seconds, in the order of their ids. A thread
    decodes them, as decoding would block a node's event loop for too long. Raises Unreachable.
    """
    answers = await scatter(connection, subject(cluster), nodes, _read_sender, timeout)
    return [answers[node] for node in sorted(answers)]


class _Signed(msgspec.Struct):
    """Only the sender of an answer: the rest is skipped."""

    node: str


def _read_sender(body: bytes) -> tuple[str, bytes]:
    return msgspec.json.decode(body, type=_Signed).node, body


def read_answers(bodies: Iterable[bytes], priorities: int) -> list[NodeOverview]:
    """Decode the answers, in a thread, without those that aren't overviews of this number of priorities."""
    with low_priority():
        return [answer for body in bodies if (answer := _read(body, priorities)) is not None]


def find_paused(answers: Iterable[NodeOverview]) -> dict[str, int]:
    """Return the paused topics, with the revisions of their specs."""
    return {
        row.project: row.revision
        for answer in answers
        for row in answer.rows
        if row.state == "paused" and not row.deleted
    }


def overview(
    cluster: ClusterSnapshot, answers: Sequence[NodeOverview], at: int, paused_by: Mapping[str, str]
) -> dict[str, Any]:
    """Build the overview, in a thread. `at` is in unix ns; `paused_by` says who paused topics, by project."""
    with low_priority():
        return document(cluster, answers, at, paused_by=paused_by)


def _read(body: bytes, priorities: int) -> NodeOverview | None:
    """Decode an answer. Returns None if it is none, or has another number of priorities."""
    try:
        answer = msgspec.json.decode(body, type=NodeOverview)
    except UNREADABLE as error:
        _log.debug("not an overview", error=str(error))
        return None
    parts = [row.bands for row in answer.rows] + ([answer.rest.bands] if answer.rest is not None else [])
    return answer if all(len(bands) == priorities for bands in parts) else None
