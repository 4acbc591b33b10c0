"""Detects that etcd was restored from a backup, by the revisions of the keys that a watch follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.coordination.ports import Listing

if TYPE_CHECKING:
    from evenlane.ring.coordination.ports import Event, KeyValue


class _Revisions(NamedTuple):
    created: int
    modified: int


_NONE = _Revisions(0, 0)
_UNREADABLE = "\ufffd"  # several keys that aren't UTF-8 may be decoded to the same text


class KeyRevisions:
    """The revisions of the keys under one prefix, as reported by its watch.

    A watch leaves nothing out. A key that was created or put before the newest reported revision must therefore be
    known with exactly that revision. If it isn't, or if the revision of the whole store is lower, etcd was rolled back.

    Two things together hide a rollback: the store's revision has caught up, by later changes or by `--bump-revision`,
    and no key in the listing is older than reported. Keys that were created after the backup then look deleted.
    """

    def __init__(self) -> None:
        self._newest = 0  # newest reported revision
        self._keys: dict[str, _Revisions] = {}

    def observe(self, update: Listing | Event) -> bool:
        """Take in an item of the watch, and return whether it shows that etcd was rolled back since."""
        if isinstance(update, Listing):
            items = [item for item in update.items if _UNREADABLE not in item.key]
            gone_back = update.revision < self._newest or any(map(self._is_contradicted, items))
            self._newest = update.revision
            self._keys = {item.key: _of(item) for item in items}
            return gone_back
        self._newest = update.item.mod_revision
        if update.kind == "put":
            self._keys[update.item.key] = _of(update.item)
        else:
            self._keys.pop(update.item.key, None)
        return False

    def _is_contradicted(self, item: KeyValue) -> bool:
        """Whether a listed key contradicts the known revisions. A key of the newest revision itself proves nothing,
        because a watch may break off in the middle of a transaction.
        """
        known, now = self._keys.get(item.key, _NONE), _of(item)
        return any(revision != before and revision < self._newest for revision, before in zip(now, known, strict=True))


def _of(item: KeyValue) -> _Revisions:
    return _Revisions(item.create_revision, item.mod_revision)
