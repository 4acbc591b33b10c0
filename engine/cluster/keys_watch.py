"""Watches some keys as if they were all the keys under a prefix, for a client that may read no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.ring.coordination.ports import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.ring.coordination.ports import Coordination, Event, KeyValue, Watch


class KeysWatch:
    """See `evenlane.ring.coordination.ports.Watch`. Each key has a watch of its own.

    Invariant: `_items` has the keys that exist, as last received; `_unlisted` those whose watch hasn't listed yet.
    """

    def __init__(self, coordination: Coordination, keys: Sequence[str]) -> None:
        self._watches = {key: coordination.watch(key, exact=True) for key in keys}
        self._unlisted = set(keys)
        self._items: dict[str, KeyValue] = {}
        self._arrived: asyncio.Queue[Listing | Event | None] = asyncio.Queue()
        self._following = [
            asyncio.create_task(self._follow(key, watch), name=f"watch {key}") for key, watch in self._watches.items()
        ]

    def __aiter__(self) -> KeysWatch:
        return self

    async def __anext__(self) -> Listing | Event:
        if (update := await self._arrived.get()) is None:
            self._arrived.put_nowait(None)
            raise StopAsyncIteration
        return update

    async def aclose(self) -> None:
        for watch in self._watches.values():
            await watch.aclose()
        await asyncio.gather(*self._following)
        self._arrived.put_nowait(None)

    async def _follow(self, key: str, watch: Watch) -> None:
        async for update in watch:
            if isinstance(update, Listing):
                self._items.pop(key, None)
                self._items |= {item.key: item for item in update.items}
                self._unlisted.discard(key)
                if not self._unlisted:
                    items = sorted(self._items.values(), key=lambda item: item.key)
                    self._arrived.put_nowait(Listing(update.revision, tuple(items)))
                continue
            if update.kind == "put":
                self._items[key] = update.item
            else:
                self._items.pop(key, None)
            if not self._unlisted:  # otherwise the first listing will have it
                self._arrived.put_nowait(update)
