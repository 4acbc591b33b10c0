"""Withholds a project while too many of its messages are set aside, so that they can't fill the node's memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.node.queues.withheld import WithheldProjects


class ProjectLimit:
    """Counts messages that are set aside, per project. A project with `most` of them is withheld until half are left.

    Invariant: `_stopped` has the projects withheld for it.
    """

    def __init__(self, withheld: WithheldProjects, reason: str, most: int) -> None:
        self._withheld, self._reason, self._most = withheld, reason, most
        self._aside: Counter[str] = Counter()
        self._stopped: set[str] = set()

    def count(self, project: str) -> int:
        return self._aside[project]

    def add(self, project: str) -> None:
        self._aside[project] += 1
        if self._aside[project] == self._most and project not in self._stopped:
            self._stopped.add(project)
            self._withheld.withhold(project, self._reason, True)

    def remove(self, project: str) -> None:
        self._aside[project] -= 1
        if project in self._stopped and self._aside[project] <= self._most // 2:
            self._stopped.discard(project)
            self._withheld.withhold(project, self._reason, False)
        if not self._aside[project]:
            del self._aside[project]
