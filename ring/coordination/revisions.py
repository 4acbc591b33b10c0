"""Whether etcd has gone back to a backup, told by the revisions of the keys that a watch follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.coordination.ports import Listing

if TYPE_CHECKING:
    from evenlane.ring.coordination.ports import Event, KeyValue


class _Revisions(NamedTuple):
    created: int
    modified: int


_NONE = _Revisions(0, 0)
_UNREADABLE = "\ufffd"  # several keys that are no UTF-8 may look like one


class KeyRevisions:
    """The revisions of the keys under one prefix, as the watch of it tells them.

    A watch leaves nothing out. So a key that was made or put before the newest revision told must be known with
    exactly that revision. If it isn't, or if the whole store's revision is lower, etcd has gone back.

    Two things together hide it. The store's revision has caught up, by later changes or by `--bump-revision`. And no
    key in the listing is older than it was told. Then keys that were made after the backup look deleted.
    """

    def __init__(self) -> None:
        self._newest = 0  # told
        self._keys: dict[str, _Revisions] = {}

    def take(self, told: Listing | Event) -> bool:
        """Returns whether it shows that etcd has gone back since what was told before."""
        if isinstance(told, Listing):
            items = [item for item in told.items if _UNREADABLE not in item.key]
            gone_back = told.revision < self._newest or any(map(self._contradicts, items))
            self._newest = told.revision
            self._keys = {item.key: _of(item) for item in items}
            return gone_back
        self._newest = told.item.mod_revision
        if told.kind == "put":
            self._keys[told.item.key] = _of(told.item)
        else:
            self._keys.pop(told.item.key, None)
        return False

    def _contradicts(self, item: KeyValue) -> bool:
        """A watch may break off in the middle of a transaction: a key of the newest revision itself proves nothing."""
        known, now = self._keys.get(item.key, _NONE), _of(item)
        return any(revision != before and revision < self._newest for revision, before in zip(now, known, strict=True))


def _of(item: KeyValue) -> _Revisions:
    return _Revisions(item.create_revision, item.mod_revision)
