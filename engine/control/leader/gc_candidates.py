"""Decides which groups can be collected and when to ask nodes about them. Pure; times are monotonic ns.

A group is collected after it was found empty twice, at least `every` apart. Both times must be later than any put under
a topic that had the group: at least `known` after the group was first seen closed to puts. A shallow question, about
what nodes know, comes first, as it is cheap; the streams are only examined (a deep question) when the shallow answer is
that the group is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.records.group_gc_messages import GroupQuestion

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.quota.topics.topic import Accepted

_TIMES = 2  # consecutive findings required to call a group empty
_MOST_GROUPS = 20_000  # in one question; the largest topic has this many
_MOST_PROJECTS = 100


class EmptyGroup(NamedTuple):
    """Empty groups of a project that can be collected, with the number of the accepted topic examined."""

    project: str
    groups: tuple[int, ...]
    number: int


class _Project:
    """State of one project.

    Invariants: `since` (when each group was first seen closed to puts) and `times` (how many times in a row it was
    found empty) have exactly the groups that are leaving; `at` is when the next question is due, `pause` the interval
    before it.
    """

    __slots__ = ("accepted", "at", "deep", "pause", "since", "times")

    def __init__(self) -> None:
        self.since: dict[int, int] = {}
        self.times: dict[int, int] = {}
        self.deep = False  # whether the next question examines the streams, too
        self.at = self.pause = 0

    def follow(self, accepted: Accepted, now: int) -> None:
        self.accepted = accepted
        groups = _list_leaving(accepted)
        self.since = {group: self.since.get(group, now) for group in groups}
        self.times = {group: self.times.get(group, 0) for group in groups}

    def note_answer(self, looked: Collection[int], full: Collection[int] | None, *, deep: bool) -> bool:
        """Note an answer; return whether a deep question is worthwhile. `full` is None if an answer is missing."""
        for group in looked:
            empty = deep and full is not None and group not in full
            self.times[group] = self.times[group] + 1 if empty else 0
        if full is None or (self.accepted.deleted and full):
            return False  # a deleted topic is collected as a whole
        return any(group not in full and self.times[group] < _TIMES for group in looked)

    def list_empty(self) -> tuple[int, ...]:
        return tuple(sorted(group for group, times in self.times.items() if times >= _TIMES))


class GroupCandidates:
    """Candidates by project. `known`, `every` and `longest` (pause between two questions about a project) are in ns."""

    def __init__(self, known: int, every: int, longest: int) -> None:
        self._known, self._every, self._longest = known, every, longest
        self._projects: dict[str, _Project] = {}

    def on_change(self, project: str, accepted: Accepted | None, now: int) -> None:
        """Note a change of the accepted topic; None if it was deleted."""
        if accepted is None or not _list_leaving(accepted):
            self._projects.pop(project, None)
            return
        each = self._projects.get(project)
        if each is None:
            each = self._projects[project] = _Project()
            each.at = now
        each.follow(accepted, now)
        each.deep, each.pause = False, self._every
        each.at = max(min(each.at, now + self._every), min(each.since.values()) + self._known)

    def begin(self) -> None:
        """Discard earlier findings at the start of a term: they may be from long ago."""
        for each in self._projects.values():
            each.times = dict.fromkeys(each.times, 0)
            each.deep, each.pause = False, self._every

    def due(self) -> int | None:
        """Return when the next question is due, None if no group is a candidate."""
        return min((each.at for each in self._projects.values()), default=None)

    def questions(self, now: int, *, deep: bool) -> tuple[GroupQuestion, ...]:
        """Return the questions that are due, longest overdue first. Each ends with `on_answer`."""
        ready = [name for name, each in self._projects.items() if each.at <= now and each.deep == deep]
        chosen: list[GroupQuestion] = []
        room = _MOST_GROUPS
        for name in sorted(ready, key=lambda name: self._projects[name].at)[:_MOST_PROJECTS]:
            since = self._projects[name].since
            groups = tuple(group for group, seen in since.items() if seen + self._known <= now)
            room -= len(groups)
            if chosen and room < 0:
                break
            chosen.append(GroupQuestion(name, groups))
        return tuple(chosen)

    def on_answer(
        self, question: GroupQuestion, full: Collection[int] | None, now: int, *, deep: bool
    ) -> EmptyGroup | None:
        """Note the answer to a question; return the groups that can be collected, if any.

        `full` are the groups that still hold messages; None if an owner didn't answer or a partition has no owner.
        """
        project = self._projects.get(question.project)
        if project is None:
            return None
        project.deep = project.note_answer(project.since.keys() & set(question.groups), full, deep=deep)
        going = project.list_empty()
        if not (project.deep or going):
            project.pause = min(2 * project.pause, self._longest)
        project.at = now + (self._every if project.deep or going else project.pause)
        return EmptyGroup(question.project, going, project.accepted.number) if going else None


def _list_leaving(accepted: Accepted) -> tuple[int, ...]:
    """Return the groups that take no puts and are collected once empty."""
    active = range(accepted.active) if accepted.deleted else ()
    return (*active, *accepted.draining)
