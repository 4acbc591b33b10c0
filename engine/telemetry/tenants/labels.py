"""Labels of projects in metrics: the busiest have their own, all others share one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.telemetry.metric_names import OTHER
from evenlane.engine.telemetry.tenants.busiest import busiest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Labels:
    """The labels of a node's projects. Invariant: `named` has the at most `most` projects with a label of their own."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.named: set[str] = set()
        self._moved: dict[str, int] = {}  # messages of each project since the last choice

    def label_of(self, project: str) -> str:
        """Return the project's own label if it has one or there is room, otherwise the shared one."""
        if project in self.named:
            return project
        if len(self.named) < self._most and project != OTHER:
            self.named.add(project)
            return project
        return OTHER

    def own(self, present: Collection[str]) -> set[str]:
        """Return the projects of these that have a label of their own."""
        return {name for name in self.named if name in present}

    def note_moved(self, project: str, messages: int) -> None:
        self._moved[project] = self._moved.get(project, 0) + messages

    def choose(self, waiting: Mapping[str, int], present: Collection[str]) -> set[str]:
        """Choose again if more projects are present than have labels; return those that have lost theirs. A silent
        project displaces no other, and gets a free label once it is active.
        """
        moved, self._moved = self._moved, {}
        if len(present) <= len(self.own(present)) + (OTHER in present):
            return set()
        known = waiting.keys() | moved.keys() | self.named
        scores = {name: waiting.get(name, 0) + moved.get(name, 0) for name in known if name in present}
        before, self.named = self.named, busiest(scores, self.named, self._most)
        return before - self.named
