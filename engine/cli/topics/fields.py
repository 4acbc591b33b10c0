"""Converts a topic's fields from flags, and to the words of a table."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from evenlane.engine.base.durations import MAX_SECONDS, format_duration, parse_duration
from evenlane.engine.base.names import check_subscription
from evenlane.engine.base.numbers import format_number
from evenlane.engine.errors import ConfigError, InvalidTopic
from evenlane.quota.topics.fields import SUBSCRIPTION_QUOTA
from evenlane.quota.topics.strict_json import real
from evenlane.quota.topics.topic import TopicError, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenlane.engine.control.topics.history import ChangeEntry
    from evenlane.engine.control.topics.plan import PlanRow
    from evenlane.engine.control.topics.status import TopicStatus

_DEFAULT = "default"  # resets a field to its default
_DURATIONS = ("ttl", "ack_wait", "base", "cap")
_SHOWN = ("qps", "groups", "burst", "weight", "spread", "state")


def from_flags(project: str, *, subscription: str | None = None, **flags: object) -> dict[str, object]:
    """Return the changes that the flags ask for; None resets to the default. With `subscription`, they are those of its
    quota. Raises InvalidName, InvalidTopic.
    """
    changes: dict[str, object] = {}
    backoff = flags.pop("backoff", None)
    for field, text in flags.items():
        if text is not None:
            changes[field] = _value(project, field, field, text)
    parts = {name: text for name, text in dict(backoff or {}).items() if text is not None}  # type: ignore[call-overload]
    if parts and all(text == _DEFAULT for text in parts.values()):
        changes["backoff"] = None
    elif parts:
        changes["backoff"] = {name: _value(project, f"backoff-{name}", name, text) for name, text in parts.items()}
    if not changes:
        raise InvalidTopic(f"topic {project}: nothing to set: name at least one field, such as --qps 100")
    if subscription is not None:
        changes = _of_subscription(project, subscription, changes)
    try:  # each field can be checked without etcd
        merge(None, {"qps": 1, **changes})
    except TopicError as error:
        raise InvalidTopic(f"topic {project}: {error}") from error
    return changes


def _of_subscription(project: str, name: str, changes: Mapping[str, object]) -> dict[str, object]:
    check_subscription(name)
    others = [field for field in changes if field not in SUBSCRIPTION_QUOTA]
    if others:
        raise InvalidTopic(
            f"topic {project}: --{others[0].replace('_', '-')} is the same for all subscriptions: with --subscription,"
            " set --qps, --burst or --concurrency"
        )
    return {"subscriptions": {name: changes}}


def _value(project: str, flag: str, field: str, text: object) -> object:
    if not isinstance(text, str):
        return text
    if text == _DEFAULT:
        return None
    if field == "state":
        return text
    try:
        if field == "push":
            return json.loads(text)
        return parse_duration(text) if field in _DURATIONS else _number(text)
    except ConfigError as error:
        reason = str(error)
    except (ValueError, RecursionError):
        right = """JSON such as '{"url": "https://example.com/hook"}'""" if field == "push" else "a number"
        reason = f"{text[:80]!r} is not {right}"
    raise InvalidTopic(f"topic {project}: --{flag.replace('_', '-')} {reason}")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return real(text)


def rows(status: TopicStatus) -> Iterator[tuple[str, str, str]]:
    """Yield field, value in effect, and value in the spec."""
    document = status.document()
    in_effect: Mapping[str, Any] = document["in_force"] or {}
    spec: Mapping[str, Any] = _spec_of(document)
    for field in {**in_effect, **spec}:
        if field != "revision":
            known, is_set = field in in_effect, field in spec
            yield (
                field,
                field_words(field, in_effect[field]) if known else "-",
                field_words(field, spec[field]) if is_set else "",
            )
    if isinstance(status.spec, str):
        yield "(not an object)", "-", words(status.spec)
    accepted_at = in_effect.get("revision", 0)
    # Without a leader a spec is accepted before it has a revision.
    yield (
        "revision",
        words(accepted_at) if accepted_at > 1 else "-",
        words(status.revision) if status.revision else "",
    )


def line(status: TopicStatus) -> tuple[str, ...]:
    """Return one line of the list."""
    document = status.document()
    shown: Mapping[str, Any] = document["in_force"] or _spec_of(document)
    how = "yes" if status.is_accepted else f"no: {status.reason}"
    if status.is_accepted and status.spec is None:
        how = "deleted, removed once its backlog is empty"
    return (_format_project(status.project), *(words(shown.get(field)) for field in _SHOWN), how)


def _spec_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of the spec, if there are any."""
    return document["wish"] if isinstance(document["wish"], dict) else {}


def _format_project(project: str) -> str:
    """Escape and cut a project's name, which anybody may have written in a file or in etcd."""
    return (project if project.isprintable() and project else repr(project))[:80]


def entry_line(entry: ChangeEntry) -> tuple[str, ...]:
    """Return one line of a topic's history."""
    if entry.changes.get("deleted") == (True, None):
        what = "removed: its backlog was empty"
    else:
        what = changes_words(entry.changes, "-", arrows=entry.changes.get("qps", ("",))[0] is not None)
    when = f"{entry.at[:19]}Z" if entry.at.endswith("+00:00") else entry.at
    return when, entry.by or "unknown", entry.via or "-", str(entry.revision), what


def row_line(row: PlanRow) -> tuple[str, str, str]:
    """Return one line of a plan."""
    return (
        row.action,
        _format_project(row.project),
        row.problem or changes_words(row.changes, "default", arrows=row.action != "new"),
    )


def changes_words(changes: Mapping[str, tuple[Any, Any]], nothing: str, *, arrows: bool) -> str:
    """Format changes: `qps 100 -> 200, concurrency 5 -> default`. A new topic has no `arrows`."""

    def side(field: str, value: object) -> str:
        return nothing if value is None else field_words(field, value)

    return ", ".join(
        f"{_format_name(field)} {side(field, before)} -> {side(field, after)}"
        if arrows
        else f"{_format_name(field)} {side(field, after)}"
        for field, (before, after) in changes.items()
    )


def _format_name(field: str) -> str:
    return field if field.isprintable() and field.isascii() else json.dumps(field)


def field_words(field: str, value: object) -> str:
    """Format a field's value as the flags of `topics set` take it. A spec may hold anything."""
    match value:
        case {} if field == "subscriptions":
            return "; ".join(f"{_format_name(name)} {quota_words(quota)}" for name, quota in value.items())
        case {} if field == "backoff":
            return _part_words(value)
        case int() | float() if field in _DURATIONS and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS:
            return format_duration(value)
    return words(value)


def quota_words(quota: object) -> str:
    """Format the quota of one subscription. A spec may hold anything."""
    plain = msgspec.to_builtins(quota) if isinstance(quota, msgspec.Struct) else quota
    return _part_words(plain) if isinstance(plain, dict) else words(plain)


def _part_words(parts: Mapping[str, object]) -> str:
    return " ".join(f"{_format_name(name)}={field_words(name, part)}" for name, part in parts.items())


def words(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float() if isfinite(value):
            return format_number(value)
        case str() if value.isprintable():
            return value
        case int():
            return str(value)
    return json.dumps(value)
