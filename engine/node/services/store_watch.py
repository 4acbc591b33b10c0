"""Checks every few seconds whether a node's streams can be written, and reports those that can't."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.node.services.write_failures import WriteFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.core.ports import Store

_log = structlog.get_logger(__name__)

_EVERY_S = 2.0  # so that a failure that counts from the second look on is seen within 5 s


class StoreWatch:
    """Call `open` once the store is open, and `close` before it is closed. `partitions` returns the node's
    partitions.
    """

    def __init__(
        self, store: Store, cluster: str, troubles: Troubles, partitions: Callable[[], Collection[int]]
    ) -> None:
        self._store, self._cluster, self._troubles, self._partitions = store, cluster, troubles, partitions
        self._failures = WriteFailures(names.settled_stream(cluster))
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._run(), name="store watch")

    async def close(self) -> None:
        """Harmless when it was never opened."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._troubles.end("store")

    async def look(self) -> None:
        """Raises Lost, Refused."""
        streams = self._streams()
        found = await self._store.unwritable(streams)
        began, ended = self._failures.look(streams, found, now_ns())
        for stream, (reason, restart) in began:
            _log.warning("a stream can't be written", stream=stream, reason=reason, restart=restart)
        for stream, after_s in ended:
            _log.info("a stream can be written again", stream=stream, after_s=round(after_s, 1))
        if sentence := self._failures.sentence:
            self._troubles.begin("store", sentence, ready=self._failures.can_settle)
        else:
            self._troubles.end("store")

    def _streams(self) -> list[str]:
        own = sorted(self._partitions())
        lanes = [names.stream(self._cluster, LaneId(kind, number)) for number in own for kind in ("lanes", "later")]
        return [*names.other_streams(self._cluster), *lanes]  # (among the others is that of a subscription's retries)

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except (Lost, Refused) as error:  # the last findings stay
                _log.debug("whether streams can be written is unknown", error=str(error))
            except Exception:  # noqa: BLE001 - a defect here must not end the node
                _log.exception("whether streams can be written could not be found out")
            await asyncio.sleep(_EVERY_S)
