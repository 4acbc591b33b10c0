"""The status of a project: a name, its severity, and sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - a compiled class needs it
from typing import NamedTuple

SEVERITIES = ("critical", "warning", "info", "ok")
"""Most urgent first; the words of the alerts. `critical`: messages aren't handled at all, or fail. `warning`: they are
late or get lost. `info`: they wait as intended.
"""

NAMES = (
    "no_owner", "no_topic", "no_handler", "stuck", "failing", "expiring", "deleted", "endpoint", "over_quota", "late",
    "waiting", "paused", "draining", "ok",
)  # fmt: skip
"""All statuses. Of two with the same severity, the earlier one is more urgent."""


class Status(NamedTuple):
    """A project's status. `label` is for a table: two or three words. `sentence` says what is so, and begins with a
    small letter, so that it may follow the project's name. `remedy` says what to do; empty if there is nothing to do.
    """

    name: str
    severity: str
    label: str
    sentence: str
    remedy: str = ""

    @classmethod
    def read(cls, described: Mapping[str, str]) -> Status:
        """Return the status that `describe` has described."""
        return cls(*(described[field] for field in cls._fields))

    def describe(self) -> dict[str, str]:
        """Return the status in JSON types."""
        return self._asdict()

    @property
    def urgency(self) -> tuple[int, int]:
        """A sort key: the most urgent status is first."""
        return SEVERITIES.index(self.severity), NAMES.index(self.name)


OK = Status("ok", "ok", "ok", "nothing waits")
