"""History of topics: each accepted change with its author and time, written in the same transaction as the topic.

The last 50 changes of a project are stored under `history/<project>/<number mod 50>`; etcd's revisions give their
order. A client that writes a spec may put its name under `authors/<project>` in the same transaction. That name counts
for this one revision only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evenlane.engine.base import names
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.quota.topics.fields import FIELDS
from evenlane.quota.topics.strict_json import write_object
from evenlane.quota.topics.topic import Topic
from evenlane.ring.coordination.ports import Absent, PutKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination, KeyValue

KEPT = 50  # entries per project
DELETES = "topics delete"  # the command
MOST_TEXT = 200  # characters in a name
_MOST_NUMBER = 2**52  # of an entry; a higher one wasn't written by Evenlane
_AT_ONCE = 50  # projects per request
_MOST_AUTHOR_BYTES = 4_096
_MOST_VALUE_BYTES = 1_000  # per field
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Topic) if not field.required}


class ChangeAuthor(msgspec.Struct, frozen=True):
    """Author of a spec, and the command used. `replaced` is the revision of the spec that the author changed, 0 if
    there was none: a change is attributed to the author only if it started there.
    """

    by: str
    via: str = ""
    replaced: int | None = None


class ChangeEntry(msgspec.Struct, frozen=True):
    """One accepted change. `changes` maps a field to its value before (None: there was no topic) and after.

    `at` is RFC 3339 by the writer's clock; `by` is None if the spec's writer gave no name.
    """

    number: int
    revision: int
    at: str
    by: str | None
    via: str | None
    changes: dict[str, tuple[Any, Any]]


class ChangeHistory(NamedTuple):
    """Known changes of a project, newest first, and the keys whose values can't be read."""

    entries: list[ChangeEntry]
    unreadable: list[str]


def author_put(env: str, project: str, author: ChangeAuthor) -> PutKey:
    """Return the put for the spec's transaction."""
    authored_by = {"by": author.by[:MOST_TEXT], "via": author.via[:MOST_TEXT], "replaced": author.replaced}
    return PutKey(names.key(env, "authors", project), write_object(authored_by))


def author_of(found: KeyValue | None, revision: int, since: int = 0) -> ChangeAuthor | None:
    """Return the author who wrote or deleted the spec at this revision, if known.

    If the revision of a deletion is unknown, `revision` is 0: the author is then the one of a deletion after `since`.
    """
    if found is None or len(found.value) > _MOST_AUTHOR_BYTES:
        return None
    author = _author(found)
    if revision:
        return author if found.mod_revision == revision else None
    return author if author is not None and author.via == DELETES and found.mod_revision > since else None


def _author(found: KeyValue) -> ChangeAuthor | None:
    try:
        read = msgspec.json.decode(found.value, type=ChangeAuthor)
    except UNREADABLE:
        return None
    return ChangeAuthor(_plain(read.by), _plain(read.via), read.replaced)


def entry_put(env: str, project: str, entry: ChangeEntry) -> PutKey:
    """Return the put for the accepted topic's transaction."""
    key = names.key(env, "history", project, entry.number % KEPT)
    return PutKey(key, write_object(msgspec.to_builtins(entry)))


def entry(
    before: Accepted | None, after: Accepted | None, revision: int, at: str, author: ChangeAuthor | None
) -> ChangeEntry | None:
    """Return the entry of a change, None if nothing but the revision has changed."""
    found = changes(before, after)
    if not found:
        return None
    number = after.number if after is not None else before.number + 1 if before is not None else 0
    by, via = (None, None) if author is None else (author.by, author.via)
    return ChangeEntry(number, revision, at, by, via, found)


def changes(before: Accepted | None, after: Accepted | None) -> dict[str, tuple[Any, Any]]:
    """Return (before, after) by field. For a removed topic only `deleted`: from true to None."""
    if after is None:
        return {"deleted": (True, None)}
    now = _fields(after)
    if before is None:
        return {name: (None, _short(now[name])) for name in _notable(after)}
    was = _fields(before)
    return {name: (_short(was[name]), _short(value)) for name, value in now.items() if was[name] != value}


def read_history(env: str, project: str, items: Iterable[KeyValue]) -> ChangeHistory:
    """Decode values from etcd, where anyone may have written."""
    ordered = sorted(items, key=lambda item: item.mod_revision, reverse=True)
    found = {item.key: _read(item) for item in ordered if _slot(env, project, item) is not None}
    unreadable = sorted(item.key for item in ordered if found.get(item.key) is None)
    return ChangeHistory([entry for entry in found.values() if entry is not None], unreadable)


async def next_numbers(coordination: Coordination, env: str, projects: Collection[str]) -> dict[str, int]:
    """Return the next entry number of each project that has a history: a recreated topic continues its numbers.

    For projects without an accepted topic; otherwise the number is in `accepted/`. Raises CoordinationError.
    """
    named, found = [*projects], dict[str, int]()
    for start in range(0, len(named), _AT_ONCE):
        some = named[start : start + _AT_ONCE]
        if len(some) > 1 and await _have_none(coordination, env, some):
            continue
        listings = await asyncio.gather(*(coordination.list(names.key(env, "history", each, "")) for each in some))
        numbers = (next_number(env, project, listing.items) for project, listing in zip(some, listings, strict=True))
        found |= {project: number for project, number in zip(some, numbers, strict=True) if number is not None}
    return found


async def _have_none(coordination: Coordination, env: str, projects: Iterable[str]) -> bool:
    """Whether none of these projects has a history, in a single request, as thousands may be created at a time. A
    history starts with slot 0.
    """
    return (await coordination.txn([Absent(names.key(env, "history", each, 0)) for each in projects], [])).succeeded


def next_number(env: str, project: str, items: Iterable[KeyValue]) -> int | None:
    """Return the number after the last valid entry, None if there is none. A valid entry is in its own slot."""
    numbers = [
        entry.number
        for slot, entry in _slots(env, project, items)
        if 0 <= entry.number < _MOST_NUMBER and entry.number % KEPT == slot
    ]
    return max(numbers) + 1 if numbers else None


def _slots(env: str, project: str, items: Iterable[KeyValue]) -> Iterator[tuple[int, ChangeEntry]]:
    """Yield the entries that can be decoded, with their slots."""
    for item in items:
        slot = _slot(env, project, item)
        entry = None if slot is None else _read(item)
        if slot is not None and entry is not None:
            yield slot, entry


def _slot(env: str, project: str, item: KeyValue) -> int | None:
    return names.number(item.key.removeprefix(names.key(env, "history", project, "")))


def _read(item: KeyValue) -> ChangeEntry | None:
    try:
        found = msgspec.json.decode(item.value, type=ChangeEntry)
    except UNREADABLE:
        return None
    by = None if found.by is None else _plain(found.by)
    # Without a leader the spec is written in the same transaction, so its revision is unknown before.
    revision = found.revision or item.mod_revision
    return msgspec.structs.replace(found, by=by, at=_plain(found.at), revision=revision)


def _fields(accepted: Accepted) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(accepted.topic)
    return {**fields, "deleted": accepted.deleted}


def _short(value: Any) -> Any:
    """Shorten a large value: a `push` may have many headers, and 50 entries per project are kept."""
    if not isinstance(value, dict) or (size := len(msgspec.json.encode(value))) <= _MOST_VALUE_BYTES:
        return value
    return f"{size:,} bytes"


def _notable(accepted: Accepted) -> list[str]:
    topic = accepted.topic
    return [name for name in FIELDS if name not in _DEFAULTS or getattr(topic, name) != _DEFAULTS[name]]


def _plain(text: str) -> str:
    """Escape and cut a text from an unknown source, for a terminal."""
    shown = text[:MOST_TEXT]
    return shown if shown.isprintable() else repr(shown)
