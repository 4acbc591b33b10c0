"""Exports all topics as a file for `topics apply`, with notes on differences from etcd. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evenlane.quota.topics.fields import FIELDS
from evenlane.quota.topics.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.control.topics.status import TopicStatus

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Topic) if not field.required}


class Export(NamedTuple):
    """Fields of each project's topic, and notes: why the file lacks or changes a topic."""

    topics: dict[str, dict[str, Any]]
    notes: dict[str, str]


def export_topics(statuses: Iterable[TopicStatus]) -> Export:
    """Export by name, with fields in a fixed order, so that equal topics make equal files."""
    found = Export({}, {})
    for status in sorted(statuses, key=lambda each: each.project):
        fields, note = _of(status)
        if fields is not None:
            found.topics[status.project] = fields
        if note is not None:
            found.notes[status.project] = note
    return found


def format_export(export: Export) -> bytes:
    """Format as JSON in ASCII, whatever the topics' texts contain."""
    return json.dumps(export.topics, indent=2, allow_nan=False).encode() + b"\n"


def _of(status: TopicStatus) -> tuple[dict[str, Any] | None, str | None]:
    spec, in_effect = status.spec, status.in_effect
    if status.desired is not None and not isinstance(spec, str) and spec is not None:
        return _plain({**spec, **_keys_of(status.desired)}), None
    if spec is None and in_effect is not None:
        return None, "it is deleted and not in the file, which would recreate it"
    why = f"its spec can't be accepted ({status.problem})" if spec is not None else str(status.unreadable)
    if in_effect is None or in_effect.deleted:
        return None, f"{why}, so it is not in the file"
    return _plain(_nondefault_fields(in_effect.topic)), f"{why}: the file has the topic in effect"


def _keys_of(topic: Topic) -> dict[str, Any]:
    """Return the fields that decide which group has which key. An ordered topic keeps them through changes of its
    quota, and must keep them through a restore: otherwise a key's next messages would overtake those that wait.
    """
    return {"groups": topic.groups, "spread": topic.spread} if topic.ordered else {}


def _nondefault_fields(topic: Topic) -> dict[str, Any]:
    """Return the fields that differ from built-in defaults. Defaults from the cluster's config are unknown here."""
    return {
        name: getattr(topic, name)
        for name in FIELDS
        if name not in _DEFAULTS or getattr(topic, name) != _DEFAULTS[name]
    }


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert to JSON types, without fields left to their default."""
    plain = msgspec.to_builtins(fields)
    return {name: _tidy(plain[name]) for name in FIELDS if plain.get(name) is not None}


def _tidy(value: Any) -> Any:
    """Write 100, not 100.0, and leave out empty fields inside an object."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _tidy(part) for name, part in value.items() if part is not None}
    return value
