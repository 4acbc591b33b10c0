"""Which wishes are accepted: the decision alone, as a fold over what a watch of `topics/` tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from engine import names
from engine.errors import InvalidName
from quota.topic import Accepted, TopicError, accept, complete, delete, parse_wish, without
from ring.coordination import Event, KeyValue, Listing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from quota.topic import TopicFacts

_log = structlog.get_logger(__name__)


class Change(NamedTuple):
    """What is to be published for a project. `after` is None if its topic is to go.

    `revision` is that of the wish that was written or deleted; 0 where that isn't known or nobody wished it.
    """

    project: str
    before: Accepted | None
    after: Accepted | None
    revision: int


class Acceptance:
    """`accepted` is what stood under `accepted/` at the beginning, and what was decided since.

    `alarms` has a sentence for each project whose wish is bad now: its last good topic stays in force.
    """

    def __init__(self, env: str, facts: TopicFacts, accepted: Mapping[str, Accepted]) -> None:
        self.accepted = dict(accepted)
        self.alarms: dict[str, str] = {}
        self.refused = 0
        self._prefix = names.key(env, "topics", "")
        self._facts = facts
        self._bad: dict[str, int] = {}  # revision of the bad wish, so that it is counted once

    def changes(self, told: Iterable[Listing | Event]) -> list[Change]:
        """What is to be published after all of this. Of each project only the last wish is judged: a quota may be
        edited a thousand times in a second.
        """
        last: dict[str, Event] = {}
        for each in told:
            if isinstance(each, Listing):
                last = self._listed(each)
            else:
                last[self._project(each.item)] = each
        decided = (self._decided(project, event) for project, event in last.items())
        return [change for change in decided if change is not None]

    def emptied(self, project: str, groups: Collection[int], number: int | None = None) -> Change | None:
        """These groups hold nothing any more: they leave `draining`, and a deleted topic goes with its last group.

        `number` is that of the accepted topic under which they were looked at: nothing is changed if it is another one
        by now. What to publish, None if nothing is to be changed.
        """
        before = self.accepted.get(project)
        if before is None or number not in (None, before.number):
            return None
        after = without(before, groups)
        if after is None:
            del self.accepted[project]
        elif after == before:
            return None
        else:
            self.accepted[project] = after
        return Change(project, before, after, 0)

    def _listed(self, listing: Listing) -> dict[str, Event]:
        """A listing as events: a put of each wish, a deletion of each that was known and is gone."""
        wishes = {self._project(item): Event("put", item) for item in listing.items}
        gone = sorted({*self.accepted, *self.alarms} - wishes.keys())
        return {**{project: Event("delete", KeyValue(project, b"", 0, 0, 0)) for project in gone}, **wishes}

    def _decided(self, project: str, event: Event) -> Change | None:
        before = self.accepted.get(project)
        after = self._judged(project, event.item, before) if event.kind == "put" else self._dropped(project, before)
        if after is None:
            return None
        self.accepted[project] = after
        return Change(project, before, after, event.item.mod_revision)

    def _judged(self, project: str, wish: KeyValue, before: Accepted | None) -> Accepted | None:
        if wish.mod_revision in (self._bad.get(project), before.revision if before is not None else None):
            return None
        try:
            names.check_project(project)
            topic = complete(parse_wish(wish.value), self._facts, before)
        except (TopicError, InvalidName) as error:
            self._alarm(project, wish, error)
            return None
        self._calm(project)
        return accept(topic, wish.mod_revision, before)

    def _dropped(self, project: str, before: Accepted | None) -> Accepted | None:
        self._calm(project)
        return None if before is None or before.deleted else delete(before)

    def _alarm(self, project: str, wish: KeyValue, error: Exception) -> None:
        self._bad[project] = wish.mod_revision
        self.alarms[project] = str(error)
        self.refused += 1
        _log.warning("a topic is refused, the last good one stays", project=project[:64], reason=str(error))

    def _calm(self, project: str) -> None:
        self._bad.pop(project, None)
        self.alarms.pop(project, None)

    def _project(self, item: KeyValue) -> str:
        return item.key.removeprefix(self._prefix)
