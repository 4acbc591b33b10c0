"""A watch of a prefix as changes by name, with what a new listing says to be gone made explicit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from evenlane.ring.coordination.ports import Listing
from evenlane.ring.coordination.revisions import KeyRevisions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.ring.coordination.ports import Coordination, KeyValue


class WatchUpdate(NamedTuple):
    """What changed, by the key's last part; `whole`: this is all there is. `revision` is the newest told. `gone_back`:
    this shows that etcd has gone back since what was told before.
    """

    changed: Mapping[str, KeyValue]
    gone: tuple[str, ...]
    whole: bool
    revision: int
    gone_back: bool = False


class PrefixWatch:
    """`async with Items(coordination, prefix) as items: async for told in items: ...`; without end."""

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
        told = await anext(self._watch)
        gone_back = self._revisions.take(told)
        if isinstance(told, Listing):
            return WatchUpdate({self._name(item): item for item in told.items}, (), True, told.revision, gone_back)
        revision = told.item.mod_revision
        if told.kind == "put":
            return WatchUpdate({self._name(told.item): told.item}, (), False, revision)
        return WatchUpdate({}, (self._name(told.item),), False, revision)

    def _name(self, item: KeyValue) -> str:
        return item.key.removeprefix(self._prefix)
