"""Status of a project's topic: its spec, the topic in effect, and the reason for a difference."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from evenlane.engine.base import names
from evenlane.engine.errors import InvalidName, InvalidTopic, hint
from evenlane.quota.topics.strict_json import format_value, read_object
from evenlane.quota.topics.topic import MOST_BYTES, TopicError, complete, decode_accepted, encode, parse_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.quota.topics.topic import Accepted, Topic
    from evenlane.ring.coordination.ports import KeyValue

T = TypeVar("T")

_MOST_SHOWN = 200  # characters of an invalid spec
_MOST_VALUE = 1_000  # characters of one of its fields


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """Status of the topic of `project`. `problem` says why the spec can't be accepted; `spec` is then the spec as
    written, or its text if it is no object. `unreadable` says why the accepted value can't be read. `revision` is the
    spec's, 0 if there is none. `replaced` is the problem of the previous spec, if a change has replaced that entirely.
    """

    project: str
    spec: Mapping[str, Any] | str | None
    desired: Topic | None  # the spec with defaults filled in
    in_effect: Accepted | None
    problem: str | None = None
    revision: int = 0
    unreadable: str | None = None
    replaced: str | None = None

    @property
    def qps(self) -> float | None:
        """Messages per second in effect; None if no topic is."""
        return None if self.in_effect is None else self.in_effect.topic.qps

    @property
    def state(self) -> str | None:
        """`active`, `paused`, `draining`, or `deleted` while its backlog keeps it; None if no topic is in effect."""
        if self.in_effect is None:
            return None
        return "deleted" if self.in_effect.deleted else self.in_effect.topic.state

    @property
    def is_accepted(self) -> bool:
        """Whether the spec is in effect."""
        if self.problem is not None or self.in_effect is None:
            return False
        if self.spec is None or self.in_effect.deleted:
            return self.spec is None and self.in_effect.deleted
        return self.desired == self.in_effect.topic

    @property
    def reason(self) -> str:
        """The reason why the spec isn't in effect."""
        corrupted = f"the accepted value can't be read ({self.unreadable})"
        if self.problem is not None:
            return self.problem if self.unreadable is None else f"{self.problem}; and {corrupted}"
        if self.unreadable is None:
            return "the leader has not yet processed it"
        return f"{corrupted}, and " + (
            "there is no spec to restore it from" if self.spec is None else "the leader has not yet rewritten it"
        )

    def document(self) -> dict[str, Any]:
        """Return the document of `evenlane topics get --json`: `wish` is the spec, `in_force` the topic in effect."""
        in_effect = None if self.in_effect is None else msgspec.json.decode(encode(self.in_effect))
        if in_effect is not None:
            del in_effect["format"]  # that of the record in etcd, not of this document
        return {
            "project": self.project,
            "accepted": self.is_accepted,
            "problem": self.problem,
            "damage": self.unreadable,
            "revision": self.revision,
            "wish": msgspec.to_builtins(self.spec),
            "in_force": in_effect,
        }


def read_status(
    project: str, spec: KeyValue | None, accepted: KeyValue | None, cluster_config: ClusterConfig
) -> TopicStatus:
    in_effect, unreadable = _read(project, accepted)
    if spec is None:
        return TopicStatus(project, None, None, in_effect, unreadable=unreadable)
    try:
        names.check_project(project)
        parsed = parse_spec(spec.value)
        desired = complete(parsed, cluster_config, in_effect)
    except (TopicError, InvalidName) as error:
        return TopicStatus(
            project, describe_spec(spec.value), None, in_effect, str(error), spec.mod_revision, unreadable
        )
    return TopicStatus(project, dict(parsed.given), desired, in_effect, None, spec.mod_revision, unreadable)


def _read(project: str, accepted: KeyValue | None) -> tuple[Accepted | None, str | None]:
    """Return the topic in effect, or why it can't be read."""
    if accepted is None:
        return None, None
    try:
        names.check_project(project)
        return decode_accepted(accepted.value), None
    except (TopicError, InvalidName) as error:
        return None, str(error)


def try_decode(accepted: KeyValue | None) -> Accepted | None:
    """Decode an accepted value. Returns None if it can't be read, as the leader does."""
    try:
        return None if accepted is None else decode_accepted(accepted.value)
    except TopicError:
        return None


def describe_spec(raw: bytes) -> dict[str, Any] | str:
    """Return an invalid spec in a form fit for a terminal and JSON: its fields, or its text if it is no object."""
    try:
        read = read_object(raw, MOST_BYTES)
    except TopicError:
        text = raw[: 4 * _MOST_SHOWN].decode("utf-8", "replace")
        return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    return {
        (name if name.isprintable() else json.dumps(name))[:64]: _presentable(value) for name, value in read.items()
    }


def _presentable(value: Any) -> Any:
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError):  # NaN, or an unpaired surrogate
        return format_value(value)
    return value if size <= _MOST_VALUE else format_value(value)


def explain_effect(project: str, in_effect: Accepted, env: str) -> str:
    """Return what happens to the backlog of a deleted topic."""
    if in_effect.topic.state == "draining":
        return "puts are refused, waiting messages are still handled, and the topic is removed with the last one"
    return (
        f"puts are refused, and waiting messages are kept and paused: {hint(f'topics drain {project}', env)} has them"
        f" handled, {hint(f'backlog purge {project}', env)} drops them, and the topic is removed with the last one"
    )


def explain_not_drained(project: str, waiting: int) -> str:
    """Return, in one sentence, why an ordered topic may not get other groups yet."""
    return (
        f"topic {project} is ordered and {waiting:,} of its messages still wait or are being handled: with other"
        " groups the next ones of a key would overtake them, so leave it draining until its backlog is empty"
    )


def make_checked(project: str, make: Callable[[], T]) -> T:
    """Call `make`. Raises InvalidTopic for a TopicError."""
    try:
        return make()
    except TopicError as error:
        raise InvalidTopic(f"topic {project}: {error}") from None
