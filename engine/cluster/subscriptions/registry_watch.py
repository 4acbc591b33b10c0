"""Follows the registry of subscriptions for a process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.cluster.subscriptions.registry import RegistryView, read_view, registry_key
from evenlane.ring.coordination.ports import Listing, Unavailable
from evenlane.ring.membership.records import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.ring.coordination.ports import Coordination, Event, KeyValue, Watch

_log = structlog.get_logger(__name__)

_SILENT_S = 3.0


class RegistryWatch:
    """Call `start` before any use, and `close` at the end. Each callback in `on_change` is called on the event loop
    with each new view.
    """

    def __init__(self, coordination: Coordination, env: str) -> None:
        self.view = RegistryView()
        self.on_change: list[Callable[[RegistryView], None]] = []
        self._coordination, self._key = coordination, registry_key(env)
        self._watch: Watch | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start following; return when the registry is known. Raises CoordinationError if etcd doesn't answer, Denied
        if this user may not read it.
        """
        self._watch = self._coordination.watch(self._key, exact=True)
        try:
            async with asyncio.timeout(_SILENT_S):
                self._take(await anext(self._watch))
        except TimeoutError:
            await self.close()
            await self._coordination.get(self._key)  # says why: a watch waits silently, also for a permission
            raise Unavailable(f"etcd doesn't list {self._key} within {_SILENT_S:g} s") from None
        except BaseException:
            await self.close()
            raise
        self._following = asyncio.create_task(self._follow(self._watch), name="subscriptions")

    async def close(self) -> None:
        """Stop following. May be called twice, and without `start`."""
        if self._watch is not None:
            await self._watch.aclose()
        if self._following is not None:
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self, watch: Watch) -> None:
        async for update in watch:
            self._take(update)

    def _take(self, update: Listing | Event) -> None:
        view = self._read(_item_of(update))
        if view != self.view:
            self.view = view
            for notify in list(self.on_change):
                notify(view)

    def _read(self, item: KeyValue | None) -> RegistryView:
        try:
            return read_view(item)
        except RecordError as error:
            assert item is not None, "only a value can be unreadable"
            if item.mod_revision != self.view.revision:
                _log.error("the subscriptions can't be read: nothing is removed from the streams", reason=str(error))
            return RegistryView(item.mod_revision, None)


def _item_of(update: Listing | Event) -> KeyValue | None:
    if isinstance(update, Listing):
        return update.items[0] if update.items else None
    return update.item if update.kind == "put" else None
