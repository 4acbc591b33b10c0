"""Reconciles topic specs into accepted topics: the decisions alone, as a fold over a watch of `topics/`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog
from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.core.message.error_text import refusal, shorten
from evenlane.engine.errors import InvalidName
from evenlane.quota.topics.topic import Accepted, TopicError, accept, complete, delete, parse_spec, without
from evenlane.ring.coordination.ports import Event, KeyValue, Listing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.quota.topics.topic import ClusterLimits

_log = structlog.get_logger(__name__)


class TopicChange(NamedTuple):
    """A change to publish for a project. `after` is None if its topic must be removed.

    `revision` is that of the spec written or deleted, 0 if unknown or if no spec caused the change. `replaced` is that
    of the spec reconciled before it, 0 if there was none: specs between the two were never reconciled.
    """

    project: str
    before: Accepted | None
    after: Accepted | None
    revision: int
    replaced: int = 0


def log_changes(changes: Iterable[TopicChange]) -> None:
    """Log the topics now in effect."""
    for project, before, after, revision, _ in changes:
        if after is None:
            _log.info("a topic is gone", project=project)
            continue
        _log.info(
            "a topic is in force", project=project, state=_state(after), before=_state(before), qps=after.topic.qps,
            groups=after.active, draining=len(after.draining), revision=revision, number=after.number,
        )  # fmt: skip


def _has_lost_quotas(spec: KeyValue, before: Accepted | None) -> bool:
    """Whether the accepted topic may lack the quotas of subscriptions that its spec has: a leader of an older release
    doesn't know them, and leaves them out of what it writes.
    """
    return before is not None and before.topic.subscriptions is None and b'"subscriptions"' in spec.value


def _state(accepted: Accepted | None) -> str:
    return "none" if accepted is None else "deleted" if accepted.deleted else accepted.topic.state


class _Refused(NamedTuple):
    """A rejected spec, and the revision of the spec reconciled before it."""

    spec: KeyValue
    replaced: int


class TopicReconciler:
    """Reconciles specs. `accepted` starts as the content of `accepted/` and includes all decisions since.

    `alarms` has the reason for each project whose spec is rejected; its last good topic stays in effect. Invariant:
    `_bad` and `alarms` have the same projects.
    """

    def __init__(self, env: str, cluster_config: ClusterLimits, accepted: Mapping[str, Accepted]) -> None:
        self.accepted = dict(accepted)
        self.alarms: dict[str, str] = {}
        self.refused = 0
        self._prefix = names.key(env, "topics", "")
        self._cluster_config = cluster_config
        self._bad: dict[str, _Refused] = {}

    def find_unaccepted(self, updates: Iterable[Listing | Event]) -> set[str]:
        """Return the projects among these updates that have a spec but no accepted topic. Invalid names are left out,
        as they are never accepted.
        """
        puts: set[str] = set()
        for each in updates:
            if isinstance(each, Listing):
                puts.update(map(self._project, each.items))
            elif each.kind == "put":
                puts.add(self._project(each.item))
        return {project for project in puts - self.accepted.keys() if names.is_project(project)}

    def changes(
        self, updates: Iterable[Listing | Event], numbers: Mapping[str, int] | None = None
    ) -> list[TopicChange]:
        """Return the changes to publish after all of these updates. Only a project's last spec is reconciled: a quota
        may be edited a thousand times in a second.

        `numbers` are the first numbers of projects without an accepted topic, 0 if left out.
        """
        last: dict[str, Event] = {}
        for each in updates:
            if isinstance(each, Listing):
                last = self._convert_listing(each)
            else:
                last[self._project(each.item)] = each
        first = {} if numbers is None else numbers
        decided = (self._decide(project, event, first.get(project, 0)) for project, event in last.items())
        return [change for change in decided if change is not None]

    def remove_groups(self, project: str, groups: Collection[int], number: int | None = None) -> TopicChange | None:
        """Remove empty groups from `draining`; a deleted topic is removed with its last group.

        `number` is that of the accepted topic under which the groups were examined: if it has changed, nothing happens.
        Returns the change to publish, None if there is none. A spec that was rejected because messages waited is
        reconciled again, and replaces the removed topic.
        """
        before = self.accepted.get(project)
        if before is None or number not in (None, before.number):
            return None
        after = without(before, groups)
        if after is None:
            return self._restore_deleted(project, before)
        if after == before:
            return None
        self.accepted[project] = after
        return TopicChange(project, before, after, 0)

    def _restore_deleted(self, project: str, before: Accepted) -> TopicChange:
        del self.accepted[project]
        refused = self._bad.get(project)
        reconsidered = None if refused is None else self._judge(project, refused.spec, None)
        if refused is None or reconsidered is None:
            return TopicChange(project, before, None, 0)
        self.accepted[project] = after = replace(reconsidered, number=before.number + 1)
        return TopicChange(project, before, after, refused.spec.mod_revision, refused.replaced)

    def _convert_listing(self, listing: Listing) -> dict[str, Event]:
        """Convert a listing to events: a put per spec, and a delete per known project that is missing."""
        specs = {self._project(item): Event("put", item) for item in listing.items}
        gone = sorted({*self.accepted, *self.alarms} - specs.keys())
        return {**{project: Event("delete", KeyValue(project, b"", 0, 0, 0)) for project in gone}, **specs}

    def _decide(self, project: str, event: Event, first: int) -> TopicChange | None:
        before, revision, replaced = self.accepted.get(project), event.item.mod_revision, self._last_judged(project)
        if event.kind == "delete":
            after = self._drop(project, before)
        elif not _has_lost_quotas(event.item, before) and (
            revision == replaced or (before is not None and revision == before.revision)
        ):
            return None  # repeated by a listing
        else:
            after = self._judge(project, event.item, before)
        if after is None or after == before:
            return None
        self.accepted[project] = after = after if before is not None else replace(after, number=first)
        return TopicChange(project, before, after, revision, replaced)

    def _last_judged(self, project: str) -> int:
        """Return the revision of the spec last reconciled, accepted or rejected; 0 if none exists."""
        if project in self._bad:
            return self._bad[project].spec.mod_revision
        before = self.accepted.get(project)
        return 0 if before is None or before.deleted else before.revision

    def _judge(self, project: str, spec: KeyValue, before: Accepted | None) -> Accepted | None:
        try:
            names.check_project(project)
            topic = complete(parse_spec(spec.value), self._cluster_config, before)
        except (TopicError, InvalidName) as error:
            self._alarm(project, spec, error)
            return None
        self._calm(project)
        return accept(topic, spec.mod_revision, before)

    def _drop(self, project: str, before: Accepted | None) -> Accepted | None:
        self._calm(project)
        return None if before is None or before.deleted else delete(before)

    def _alarm(self, project: str, spec: KeyValue, error: Exception) -> None:
        self.alarms[project] = str(error)
        if (last := self._last_judged(project)) == spec.mod_revision:
            return  # reconciled again, but counted once
        self._bad[project] = _Refused(spec, last)
        self.refused += 1
        _log.warning(
            "a topic is refused, the last good one stays", project=shorten(project), field=getattr(error, "field", ""),
            reason=refusal(error), revision=spec.mod_revision,
        )  # fmt: skip

    def _calm(self, project: str) -> None:
        self._bad.pop(project, None)
        self.alarms.pop(project, None)

    def _project(self, item: KeyValue) -> str:
        return item.key.removeprefix(self._prefix)
