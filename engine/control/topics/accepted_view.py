"""What stands under `accepted/`, as the leader knows it: what its writes are compared with, and what others spoilt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.quota.topics.topic import TopicError, decode_accepted
from evenlane.ring.coordination.ports import Absent, Delete, Listing, ModifiedAt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Compare, Event, KeyValue, Op


class AcceptedView:
    """For one term. `accepted` is what could be read of `found`, by project; `unreadable` why the rest couldn't. Keys
    that are no project's are passed over.

    Nobody but the leader writes there. What somebody did nevertheless is noted as `damaged` if it can't be read, or
    isn't there any more; what can be read is in force, and is found out at the project's next change. A delete of the
    leader's own whose answer was lost looks the same: that topic comes back, and goes once more.

    `forgotten` is set when all there is was told to be older than what is known here: etcd was restored from a backup,
    or lost its last writes as it was killed (3.5.0 to 3.5.2 may), or was read before the leader's last write.
    """

    def __init__(self, env: str, found: Iterable[KeyValue]) -> None:
        self.accepted: dict[str, Accepted] = {}
        self.unreadable: dict[str, str] = {}
        self.forgotten = False
        self.damaged: dict[str, None] = {}  # in the order in which it was heard of
        self._prefix = names.key(env, "accepted", "")
        self._revisions: dict[str, int] = {}  # by key; of what was read, and of what was written since
        for item in found:
            self._read(item)

    def _read(self, item: KeyValue) -> None:
        project = item.key.removeprefix(self._prefix)
        if not names.is_project(project):
            return
        self._revisions[item.key] = item.mod_revision
        try:
            self.accepted[project] = decode_accepted(item.value)
        except TopicError as error:
            self.unreadable[project] = str(error)
            self.damaged[project] = None

    def compared(self, part: Iterable[Op]) -> Iterator[Compare]:
        """What holds as long as nobody else has written what this part writes."""
        for op in part:
            if op.key.startswith(self._prefix):
                revision = self._revisions.get(op.key)
                yield Absent(op.key) if revision is None else ModifiedAt(op.key, revision)

    def written(self, part: Iterable[Op], revision: int) -> None:
        for op in part:
            if not op.key.startswith(self._prefix):
                continue
            self.damaged.pop(op.key.removeprefix(self._prefix), None)
            if isinstance(op, Delete):
                self._revisions.pop(op.key, None)
            else:
                self._revisions[op.key] = revision

    def heard(self, told: Iterable[Listing | Event]) -> None:
        """What a watch of `accepted/` tells, the leader's own writes among it."""
        for each in told:
            if isinstance(each, Listing):
                self.forgotten = self.forgotten or self._is_older(each)
                for item in each.items:
                    self._look(item.key, item.mod_revision, item.value)
                for key in self._revisions.keys() - {item.key for item in each.items}:
                    self._look(key, each.revision, None)
            else:
                self._look(each.item.key, each.item.mod_revision, None if each.kind == "delete" else each.item.value)

    def _is_older(self, listing: Listing) -> bool:
        """Than what is known here: as a whole, or one key."""
        return listing.revision < max(self._revisions.values(), default=0) or any(
            item.mod_revision < self._revisions.get(item.key, 0) for item in listing.items
        )

    def _look(self, key: str, revision: int, value: bytes | None) -> None:
        project = key.removeprefix(self._prefix)
        if revision <= self._revisions.get(key, 0) or not names.is_project(project):
            return  # the leader's own, or from before it; or somebody's who may write there what he likes
        if value is None:
            self._revisions.pop(key, None)
        elif _is_readable(value):
            self.damaged.pop(project, None)
            return
        else:
            self._revisions[key] = revision
        self.damaged[project] = None


def _is_readable(value: bytes) -> bool:
    try:
        decode_accepted(value)
    except TopicError:
        return False
    return True
