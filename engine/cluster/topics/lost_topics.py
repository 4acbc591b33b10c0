"""Topics that etcd has lost because it has gone back: they stay in force where they were known (docs/adr/0026)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_MOST_NAMED = 5  # in a sentence


class LostTopics:
    """The projects of these topics, and what a node says of them.

    Thousands may come back one by one. So nothing is copied or sorted then: the first names are kept ready.
    """

    def __init__(self) -> None:
        self._projects: set[str] = set()
        self._named: list[str] = []  # the first by name
        self._rest: deque[str] = deque()  # the others by name, and some that are back

    def add(self, projects: Collection[str]) -> None:
        self._projects.update(projects)
        self._named, self._rest = [], deque(sorted(self._projects))
        self._name_more()

    def discard(self, project: str) -> bool:
        """Returns whether it was lost."""
        if project not in self._projects:
            return False
        self._projects.remove(project)
        if project in self._named:
            self._named.remove(project)
            self._name_more()
        return True

    def all(self) -> frozenset[str]:
        """A copy."""
        return frozenset(self._projects)

    def __len__(self) -> int:
        return len(self._projects)

    def __contains__(self, project: str) -> bool:
        return project in self._projects

    @property
    def sentence(self) -> str:
        """What a reader puts after the node's name."""
        count = len(self)
        topics, them = ("topic", "it") if count == 1 else ("topics", "them")
        some = ", ".join(self._named) + (", ..." if count > len(self._named) else "")
        back = f"`evenlane topics apply FILE` brings {them} back"
        return f"misses {count} {topics} in etcd, which had {them} ({some}): {back}"

    def _name_more(self) -> None:
        while len(self._named) < _MOST_NAMED and self._rest:
            project = self._rest.popleft()
            if project in self._projects:
                self._named.append(project)
