"""The control of `live`: a node that is the product in all but one thing: it has no watch on the topics in force, and
reads them every 10 s instead. Run as `python -c "from evenlane.engine.proof.scenarios.live_polling import main;
main()"`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from evenlane.engine.base.config.settings import load
from evenlane.engine.base.log_setup import setup
from evenlane.engine.cluster import connections
from evenlane.engine.proof.scenarios.cluster_handler import handle
from evenlane.engine.runtime.engine import Engine
from evenlane.engine.runtime.run_loop import run_loop
from evenlane.engine.runtime.serve import serve
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import CoordinationError, Listing

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.ring.coordination.ports import Coordination, Event, Watch

EVERY_S = 10.0


class Polls:
    """A watch that lists every 10 s."""

    def __init__(self, coordination: Coordination, prefix: str, every_s: float = EVERY_S) -> None:
        self._coordination, self._prefix, self._every_s = coordination, prefix, every_s
        self._closed = asyncio.Event()
        self._told = False

    def __aiter__(self) -> Polls:
        return self

    async def __anext__(self) -> Listing | Event:
        while True:
            if self._told:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        self._every_s
                    ):  # (not wait_for: see evenlane.engine.base.aio.cancellation)
                        await self._closed.wait()
            if self._closed.is_set():
                raise StopAsyncIteration
            self._told = True
            with contextlib.suppress(CoordinationError):
                return await self._coordination.list(self._prefix)

    async def aclose(self) -> None:
        self._closed.set()


class Polling(EtcdCoordination):
    """Without a watch on the topics in force."""

    def watch(self, prefix: str) -> Watch:  # type: ignore[override]  # narrower there
        return Polls(self, prefix) if prefix.endswith("/accepted/") else super().watch(prefix)


class _Connect(connections.Connections):
    def etcd(self, settings: Settings) -> Coordination:
        return Polling(settings.etcd)


def main() -> None:
    settings = load({}).settings
    setup(settings.log_format, settings.log_level)

    def ready(partitions: int, generation: int) -> None:
        print(f"ready partitions={partitions} generation={generation}", flush=True)  # noqa: T201

    run_loop(serve(Engine(handle, settings=settings, on_ready=ready, connect=_Connect())))
