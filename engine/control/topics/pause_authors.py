"""Who paused a topic, and when, from its history: for people who see that it is paused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.base.durations import parse_instant
from evenlane.engine.control.topics.history import read_history
from evenlane.engine.core.status.words import moment
from evenlane.engine.errors import ConfigError
from evenlane.ring.coordination.ports import CoordinationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.engine.control.topics.history import ChangeEntry
    from evenlane.ring.coordination.ports import Coordination

_MOST = 1_000  # projects
_AT_ONCE = 16  # projects that are read at the same time


class PauseAuthors:
    """Reads and remembers who paused topics.

    Invariant: `_known` has an author by project and revision of the pause's spec: a later change has another revision.
    """

    def __init__(self, coordination: Coordination, env: str) -> None:
        self._coordination, self._env = coordination, env
        self._known: dict[tuple[str, int], str] = {}

    async def read(self, paused: Mapping[str, int]) -> dict[str, str]:
        """Return, by project, " by jo@laptop since 28 Nov, 10:02 UTC", empty if the history doesn't say. `paused` has
        the revisions of the paused topics' specs. A history that can't be read costs nothing but the author.
        """
        missing = [place for place in paused.items() if place not in self._known][:_MOST]
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            found = await asyncio.gather(*(self._find(project) for project, _ in some))
            self._known.update(zip(some, found, strict=True))
        while len(self._known) > _MOST:
            self._known.pop(next(iter(self._known)))
        return {project: self._known.get((project, revision), "") for project, revision in paused.items()}

    async def _find(self, project: str) -> str:
        try:
            found = await self._coordination.list(names.key(self._env, "history", project, ""))
        except CoordinationError:
            return ""
        return describe_pause(read_history(self._env, project, found.items).entries)


def describe_pause(entries: Iterable[ChangeEntry]) -> str:
    """Return who paused a topic, from its history, newest first; empty if that doesn't say."""
    for entry in entries:
        if "state" in entry.changes:
            by = f" by {entry.by}" if entry.by else ""
            return f"{by}{_since(entry.at)}" if entry.changes["state"][1] == "paused" else ""
    return ""


def _since(at: str) -> str:
    try:
        return f" since {moment(parse_instant(at))}"
    except ConfigError:
        return ""
