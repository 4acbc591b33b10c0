"""Topics that etcd has lost in a rollback: they stay in effect where they were known (docs/adr/0026)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_MOST_NAMED = 5  # per sentence


class LostTopics:
    """Projects whose topics are lost, and the sentence in which a node reports them.

    Thousands of topics may return one by one, so the first names are kept ready and nothing is copied or sorted then.

    Invariant: `_named` has the first remaining names in order, `_rest` the later ones, possibly with projects that are
    back.
    """

    def __init__(self) -> None:
        self._projects: set[str] = set()
        self._named: list[str] = []  # the first ones by name
        self._rest: deque[str] = deque()  # later names, possibly of projects that are back

    def add(self, projects: Collection[str]) -> None:
        self._projects.update(projects)
        self._named, self._rest = [], deque(sorted(self._projects))
        self._name_more()

    def discard(self, project: str) -> bool:
        """Remove a project. Returns whether it was lost."""
        if project not in self._projects:
            return False
        self._projects.remove(project)
        if project in self._named:
            self._named.remove(project)
            self._name_more()
        return True

    def all(self) -> frozenset[str]:
        """Return a copy of the projects."""
        return frozenset(self._projects)

    def __len__(self) -> int:
        return len(self._projects)

    def __contains__(self, project: str) -> bool:
        return project in self._projects

    @property
    def sentence(self) -> str:
        """The report, as a continuation of the node's name."""
        count = len(self)
        topics, them = ("topic", "it") if count == 1 else ("topics", "them")
        some = ", ".join(self._named) + (", ..." if count > len(self._named) else "")
        back = f"`evenlane topics apply FILE` restores {them}"
        return f"misses {count} {topics} in etcd, which had {them} ({some}): {back}"

    def _name_more(self) -> None:
        while len(self._named) < _MOST_NAMED and self._rest:
            project = self._rest.popleft()
            if project in self._projects:
                self._named.append(project)
