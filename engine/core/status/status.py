"""The status of a project: a name, its severity, and sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - a compiled class needs it
from types import MappingProxyType
from typing import Any, NamedTuple

SEVERITIES = ("critical", "warning", "info", "ok")
"""Most urgent first; the words of the alerts. `critical`: messages aren't handled at all, or fail. `warning`: they are
late or get lost. `info`: they wait as intended.
"""

NAMES = (
    "no_owner", "no_topic", "no_handler", "stuck", "failing", "expiring", "deleted", "endpoint", "over_quota", "late",
    "waiting", "paused", "draining", "ok",
)  # fmt: skip
"""All statuses. Of two with the same severity, the earlier one is more urgent."""


MEANINGS = MappingProxyType({
    "no_owner": ("critical", "a partition with its messages has no owner, or is being taken over"),
    "no_topic": ("critical", "messages wait or arrive, and the project has no topic"),
    "no_handler": ("critical", "no handler takes messages of the project, or of their kind"),
    "stuck": ("critical", "its retries and dead letters can't be stored"),
    "failing": ("critical, warning", "half of the attempts fail, or more; warning: one in a hundred, or more"),
    "expiring": ("warning", "of the messages that leave, one in a hundred expires, or more"),
    "deleted": ("warning", "the topic was deleted while messages waited"),
    "endpoint": ("warning", "its HTTP endpoint is slow, or the endpoint or the handler asks for pauses"),
    "over_quota": ("warning", "more than 1.05 x its quota arrives, and messages wait for the quota"),
    "late": ("warning", "the oldest message of a priority is older than its target, and nothing above explains it"),
    "waiting": ("info", "messages wait for longer than a second"),
    "paused": ("info", "the topic is paused"),
    "draining": ("info", "the topic drains: it takes no new messages"),
    "ok": ("ok", "nothing of the above"),
})  # fmt: skip
"""The severity of each status, and when it holds (docs/reference/figures.md)."""


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
    def read(cls, described: Mapping[str, Any]) -> Status:
        """Return the status that `describe` has described."""
        return cls(*(described[field] for field in cls._fields))

    def describe(self) -> dict[str, Any]:
        """Return the status in JSON types."""
        return {**self._asdict(), "urgency": self.urgency}

    @property
    def urgency(self) -> int:
        """A sort key: the most urgent status has the lowest number."""
        return SEVERITIES.index(self.severity) * len(NAMES) + NAMES.index(self.name)


OK = Status("ok", "ok", "ok", "nothing waits")
