"""View of `accepted/` as the leader knows it: revisions for conditional writes, and values others have corrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.quota.topics.topic import NewerTopic, TopicError, decode_accepted
from evenlane.ring.coordination.ports import Absent, DeleteKey, Listing, ModifiedAt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Compare, Event, KeyValue, Op


class AcceptedView:
    """A view for one reading of etcd. `accepted` has the decoded values of `found` by project, `unreadable` the reasons
    for the others. Keys that belong to no project are ignored.

    Only the leader writes under `accepted/`. If another process does, a value that can't be decoded or was deleted is
    noted in `corrupted`. One that a newer release has written is in `newer`: its project is left alone. A valid value
    is in effect, and is found at the project's next change. The leader's own delete whose answer was lost looks the
    same: that topic returns, and is deleted once more.

    `is_stale` is set when a listing is older than the view: etcd was restored from a backup, lost its last writes in a
    crash (3.5.0 to 3.5.2 may), or was read before the leader's last write.
    """

    def __init__(self, env: str, found: Iterable[KeyValue]) -> None:
        self.accepted: dict[str, Accepted] = {}
        self.unreadable: dict[str, str] = {}
        self.is_stale = False
        self.corrupted: dict[str, None] = {}  # in order of arrival
        self.newer: set[str] = set()
        self._prefix = names.key(env, "accepted", "")
        self._revisions: dict[str, int] = {}  # by key, of values read and written
        for item in found:
            self._read(item)

    def _read(self, item: KeyValue) -> None:
        project = item.key.removeprefix(self._prefix)
        if not names.is_project(project):
            return
        self._revisions[item.key] = item.mod_revision
        try:
            self.accepted[project] = decode_accepted(item.value)
        except NewerTopic as error:
            self.unreadable[project] = str(error)
            self.newer.add(project)
        except TopicError as error:
            self.unreadable[project] = str(error)
            self.corrupted[project] = None

    def build_compares(self, part: Iterable[Op]) -> Iterator[Compare]:
        """Yield the conditions under which nobody else has written the keys of these operations."""
        for op in part:
            if op.key.startswith(self._prefix):
                revision = self._revisions.get(op.key)
                yield Absent(op.key) if revision is None else ModifiedAt(op.key, revision)

    def note_written(self, part: Iterable[Op], revision: int) -> None:
        for op in part:
            if not op.key.startswith(self._prefix):
                continue
            self.corrupted.pop(op.key.removeprefix(self._prefix), None)
            if isinstance(op, DeleteKey):
                self._revisions.pop(op.key, None)
            else:
                self._revisions[op.key] = revision

    def apply_events(self, updates: Iterable[Listing | Event]) -> None:
        """Apply updates of a watch of `accepted/`, the leader's own writes included."""
        for each in updates:
            if isinstance(each, Listing):
                self.is_stale = self.is_stale or self._is_older(each)
                for item in each.items:
                    self._look(item.key, item.mod_revision, item.value)
                for key in self._revisions.keys() - {item.key for item in each.items}:
                    self._look(key, each.revision, None)
            else:
                self._look(each.item.key, each.item.mod_revision, None if each.kind == "delete" else each.item.value)

    def _is_older(self, listing: Listing) -> bool:
        """Whether the listing is older than this view, as a whole or for one key."""
        return listing.revision < max(self._revisions.values(), default=0) or any(
            item.mod_revision < self._revisions.get(item.key, 0) for item in listing.items
        )

    def _look(self, key: str, revision: int, value: bytes | None) -> None:
        project = key.removeprefix(self._prefix)
        if revision <= self._revisions.get(key, 0) or not names.is_project(project):
            return  # the leader's own write, or older; or a key that belongs to no project
        if value is None:
            self._revisions.pop(key, None)
            self.newer.discard(project)
            self.corrupted[project] = None
            return
        try:
            decode_accepted(value)
        except NewerTopic:
            self.newer.add(project)
        except TopicError:
            self._revisions[key] = revision
            self.corrupted[project] = None
            return
        self.corrupted.pop(project, None)
