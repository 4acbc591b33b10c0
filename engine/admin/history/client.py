"""Client of the history: asks all nodes, and adds up their answers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from evenlane.engine.admin.history.merge import merge_histories
from evenlane.engine.admin.history.messages import decode, read_sender, subject
from evenlane.engine.admin.scatter import NodesClient, scatter
from evenlane.engine.base.background_work import low_priority
from evenlane.engine.cluster.cluster_snapshot import read_config, read_snapshot
from evenlane.engine.telemetry.tenants.history import FIGURES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.admin.history.merge import PastSecond

TIMEOUT_S = 1.0  # a slower node counts as silent, as in an overview


class HistoryClient(NodesClient):
    """Requests histories."""

    timeout_s = TIMEOUT_S

    async def history(self) -> list[PastSecond]:
        """Return the figures `FIGURES` of the last two minutes. Raises EvenlaneError if there is no such environment;
        Unreachable; CoordinationError.
        """
        config = await read_config(self._etcd, self._env)
        nodes = (await read_snapshot(self._etcd, self._cluster, config)).nodes.keys()
        if not nodes:
            return []
        async with self._line() as line:
            answers = await scatter(line, subject(self._cluster), nodes, _read, self.timeout_s)
        return await asyncio.to_thread(_merge, answers.values(), time.time_ns())


def _read(body: bytes) -> tuple[str, bytes]:
    return read_sender(body), body


def _merge(bodies: Iterable[bytes], now: int) -> list[PastSecond]:
    """Decode and merge, in a thread: that would block a node's event loop for too long."""
    with low_priority():
        answers = [answer for body in bodies if (answer := decode(body)) is not None]
        return merge_histories(answers, FIGURES, now)
