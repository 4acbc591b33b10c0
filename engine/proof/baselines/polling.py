"""A node without a watch on the accepted topics, which lists them every 10 s instead: the control of `live`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from evenlane.engine.cluster.connections import Connections
from evenlane.engine.proof.cluster.node_program import handle, run_node
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import CoordinationError, Listing

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.ring.coordination.ports import Coordination, Event, Watch

EVERY_S = 10.0


class PollingWatch:
    """A watch that lists every 10 s."""

    def __init__(self, coordination: Coordination, prefix: str, every_s: float = EVERY_S) -> None:
        self._coordination, self._prefix, self._every_s = coordination, prefix, every_s
        self._closed = asyncio.Event()
        self._has_listed = False

    def __aiter__(self) -> PollingWatch:
        return self

    async def __anext__(self) -> Listing | Event:
        while True:
            if self._has_listed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        self._every_s
                    ):  # not wait_for: see evenlane.engine.base.aio.cancellation
                        await self._closed.wait()
            if self._closed.is_set():
                raise StopAsyncIteration
            self._has_listed = True
            with contextlib.suppress(CoordinationError):
                return await self._coordination.list(self._prefix)

    async def aclose(self) -> None:
        self._closed.set()


class _PollingCoordination(EtcdCoordination):
    def watch(self, prefix: str, *, exact: bool = False) -> Watch:  # type: ignore[override]  # narrower there
        return PollingWatch(self, prefix) if prefix.endswith("/accepted/") else super().watch(prefix, exact=exact)


class _PollingConnections(Connections):
    def etcd(self, settings: Settings) -> Coordination:
        return _PollingCoordination(settings.etcd)


def main() -> None:
    run_node(handle, connect=_PollingConnections())
