"""Which wishes are accepted: the decision alone, as a fold over what a watch of `topics/` tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from engine import names
from engine.errors import InvalidName
from quota.topic import Accepted, TopicError, accept, complete, parse_wish
from ring.coordination import Listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from quota.topic import TopicFacts
    from ring.coordination import Event, KeyValue

_log = structlog.get_logger(__name__)


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

    def changes(self, told: Listing | Event) -> dict[str, Accepted]:
        """What is to be published after this: project -> its topic."""
        if isinstance(told, Listing):
            wishes = {self._project(item): item for item in told.items}
            gone = sorted({*self.accepted, *self.alarms} - wishes.keys())
            decided = [*map(self._dropped, gone), *map(self._judged, wishes, wishes.values())]
        elif told.kind == "put":
            decided = [self._judged(self._project(told.item), told.item)]
        else:
            decided = [self._dropped(self._project(told.item))]
        return {project: accepted for project, accepted in decided if accepted is not None}

    def _judged(self, project: str, wish: KeyValue) -> tuple[str, Accepted | None]:
        before = self.accepted.get(project)
        if wish.mod_revision in (self._bad.get(project), before.revision if before is not None else None):
            return project, None
        try:
            names.check_project(project)
            topic = complete(parse_wish(wish.value), self._facts, before)
        except (TopicError, InvalidName) as error:
            self._alarm(project, wish, error)
            return project, None
        self._calm(project)
        self.accepted[project] = accept(topic, wish.mod_revision, before)
        return project, self.accepted[project]

    def _dropped(self, project: str) -> tuple[str, Accepted | None]:
        """A topic without a wish is emptied: it may have a backlog, and nobody's work is thrown away."""
        self._calm(project)
        before = self.accepted.get(project)
        if before is None or before.topic.state == "draining":
            return project, None
        self.accepted[project] = replace(before, topic=replace(before.topic, state="draining"))
        return project, self.accepted[project]

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


def batches(changes: Iterable[tuple[str, bytes]], most: int, most_bytes: int) -> Iterable[list[tuple[str, bytes]]]:
    """Parts of at most so many values, and bytes in them unless one value alone has more."""
    part: list[tuple[str, bytes]] = []
    size = 0
    for key, value in changes:
        if part and (len(part) == most or size + len(value) > most_bytes):
            yield part
            part, size = [], 0
        part.append((key, value))
        size += len(value)
    if part:
        yield part
