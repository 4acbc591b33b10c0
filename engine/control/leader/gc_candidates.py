"""Which groups may go, and when to ask again: the leader's part without I/O. Times are monotonic ns.

A group goes when it was found empty twice, `every` apart at least, and both times later than any producer puts by a
topic that had it: `known` after the group was first seen to take no more puts. First it is asked what nodes know, as
that costs them little; the streams are looked at only when that is nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.wire.group_gc_messages import GroupQuestion

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.quota.topics.topic import Accepted

_TIMES = 2  # that a group must be found empty, in a row
_MOST_GROUPS = 20_000  # in one question: as many as the largest topic has
_MOST_PROJECTS = 100


class EmptyGroup(NamedTuple):
    """What may go of a project, as it was looked at under the accepted topic of this number."""

    project: str
    groups: tuple[int, ...]
    number: int


class _Project:
    """`since`: when each group was first seen to take no puts; `times`: how often in a row it was found empty."""

    __slots__ = ("accepted", "at", "deep", "pause", "since", "times")

    def __init__(self) -> None:
        self.since: dict[int, int] = {}
        self.times: dict[int, int] = {}
        self.deep = False  # the next question is about the streams, too
        self.at = self.pause = 0

    def follow(self, accepted: Accepted, now: int) -> None:
        self.accepted = accepted
        groups = _leaving(accepted)
        self.since = {group: self.since.get(group, now) for group in groups}
        self.times = {group: self.times.get(group, 0) for group in groups}

    def found(self, looked: Collection[int], full: Collection[int] | None, *, deep: bool) -> bool:
        """Whether a deep look, or another one, promises something. `full` is None if an answer is missing."""
        for group in looked:
            empty = deep and full is not None and group not in full
            self.times[group] = self.times[group] + 1 if empty else 0
        if full is None or (self.accepted.deleted and full):
            return False  # a deleted topic goes as a whole
        return any(group not in full and self.times[group] < _TIMES for group in looked)

    def going(self) -> tuple[int, ...]:
        return tuple(sorted(group for group, times in self.times.items() if times >= _TIMES))


class GroupCandidates:
    """`known`, `every` and `longest` (the longest pause between two questions about a project) in ns."""

    def __init__(self, known: int, every: int, longest: int) -> None:
        self._known, self._every, self._longest = known, every, longest
        self._projects: dict[str, _Project] = {}

    def changed(self, project: str, accepted: Accepted | None, now: int) -> None:
        """What is in force is another than before; None: nothing is."""
        if accepted is None or not _leaving(accepted):
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
        """Somebody else led until now: what was found empty here may be long ago."""
        for each in self._projects.values():
            each.times = dict.fromkeys(each.times, 0)
            each.deep, each.pause = False, self._every

    def due(self) -> int | None:
        """When the next question is to be asked."""
        return min((each.at for each in self._projects.values()), default=None)

    def questions(self, now: int, *, deep: bool) -> tuple[GroupQuestion, ...]:
        """What to ask now, those first that have waited longest. `answered` ends it, for each."""
        ready = [name for name, each in self._projects.items() if each.at <= now and each.deep == deep]
        wanted: list[GroupQuestion] = []
        room = _MOST_GROUPS
        for name in sorted(ready, key=lambda name: self._projects[name].at)[:_MOST_PROJECTS]:
            since = self._projects[name].since
            groups = tuple(group for group, seen in since.items() if seen + self._known <= now)
            room -= len(groups)
            if wanted and room < 0:
                break
            wanted.append(GroupQuestion(name, groups))
        return tuple(wanted)

    def answered(
        self, wanted: GroupQuestion, full: Collection[int] | None, now: int, *, deep: bool
    ) -> EmptyGroup | None:
        """What came of a question: the groups that hold something; None if an owner didn't answer, or there is none.
        What may go after it.
        """
        project = self._projects.get(wanted.project)
        if project is None:
            return None
        project.deep = project.found(project.since.keys() & set(wanted.groups), full, deep=deep)
        going = project.going()
        if not (project.deep or going):
            project.pause = min(2 * project.pause, self._longest)
        project.at = now + (self._every if project.deep or going else project.pause)
        return EmptyGroup(wanted.project, going, project.accepted.number) if going else None


def _leaving(accepted: Accepted) -> tuple[int, ...]:
    """The groups that take no puts and go when they are empty."""
    active = range(accepted.active) if accepted.deleted else ()
    return (*active, *accepted.draining)
