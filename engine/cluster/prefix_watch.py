"""Watches a prefix and yields its changes by name. A `whole` update replaces all earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from evenlane.ring.coordination.ports import Listing
from evenlane.ring.coordination.revisions import KeyRevisions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.ring.coordination.ports import Coordination, KeyValue


class WatchUpdate(NamedTuple):
    """Changed and deleted keys, by the part after the prefix. If `whole`, `changed` is a complete listing. `revision`
    is the newest one reported. `gone_back`: the listing shows that etcd was rolled back since the last update.
    """

    changed: Mapping[str, KeyValue]
    gone: tuple[str, ...]
    whole: bool
    revision: int
    gone_back: bool = False


class PrefixWatch:
    """Iterates without end: `async with PrefixWatch(coordination, prefix) as updates: async for update in updates`."""

    def __init__(self, coordination: Coordination, prefix: str) -> None:
        self._coordination, self._prefix = coordination, prefix
        self._revisions = KeyRevisions()

    async def __aenter__(self) -> Self:
        self._watch = self._coordination.watch(self._prefix)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._watch.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchUpdate:
        update = await anext(self._watch)
        gone_back = self._revisions.observe(update)
        if isinstance(update, Listing):
            return WatchUpdate({self._name(item): item for item in update.items}, (), True, update.revision, gone_back)
        revision = update.item.mod_revision
        if update.kind == "put":
            return WatchUpdate({self._name(update.item): update.item}, (), False, revision)
        return WatchUpdate({}, (self._name(update.item),), False, revision)

    def _name(self, item: KeyValue) -> str:
        return item.key.removeprefix(self._prefix)
