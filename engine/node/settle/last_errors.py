"""Remembers each project's last error, for people who ask how the project fails."""

from __future__ import annotations

from collections import OrderedDict

from evenlane.engine.base.clock import now_ns

_MOST = 256  # projects
_APART_NS = 1_000_000_000  # rendering an exception costs more than counting it


class LastErrors:
    """The last error of each of the projects that failed most recently.

    Invariant: at most 256 projects; those that failed longest ago come first.
    """

    def __init__(self) -> None:
        self._noted: OrderedDict[str, tuple[int, str]] = OrderedDict()

    def is_due(self, project: str) -> bool:
        """Whether a new error should be noted: one a second and project is enough."""
        known = self._noted.get(project)
        return known is None or now_ns() - known[0] >= _APART_NS

    def note(self, project: str, text: str) -> None:
        self._noted[project] = now_ns(), text
        self._noted.move_to_end(project)
        if len(self._noted) > _MOST:
            self._noted.popitem(last=False)

    def texts(self) -> dict[str, str]:
        """Return the errors by project."""
        return {project: text for project, (_, text) in self._noted.items()}

    def text_of(self, project: str) -> str:
        """Return the last error, empty if the project hasn't failed lately."""
        return self._noted.get(project, (0, ""))[1]
