"""Who changed which topic, when, and what: entries beside what is accepted, written in the same transaction.

The last 50 changes of a project stand under `history/<project>/<number mod 50>`; etcd's own revisions say in which
order. Whoever writes a wish may say who he is under `authors/<project>` in the same transaction: what stands there
counts for that one revision alone.
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
from evenlane.ring.coordination.ports import Absent, Put

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination, KeyValue

KEPT = 50  # entries of a project
DELETES = "topics delete"  # the command
MOST_TEXT = 200  # characters of a name
_MOST_NUMBER = 2**52  # of an entry; one that is higher was written by somebody else
_AT_ONCE = 50  # projects that are asked for
_MOST_AUTHOR_BYTES = 4_096
_MOST_VALUE_BYTES = 1_000  # of a field
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Topic) if not field.required}


class ChangeAuthor(msgspec.Struct, frozen=True):
    """Who wrote a wish, and by which command. `replaced` is the revision of the wish that he changed, 0 if there was
    none: he is named for a change only if it began there.
    """

    by: str
    via: str = ""
    replaced: int | None = None


class ChangeEntry(msgspec.Struct, frozen=True):
    """One accepted change. `changes` maps a field to its value before (None: there was no topic) and after.

    `at` is RFC 3339 by the writer's clock; `by` is None where whoever wrote the wish didn't say.
    """

    number: int
    revision: int
    at: str
    by: str | None
    via: str | None
    changes: dict[str, tuple[Any, Any]]


class History(NamedTuple):
    """What is known of a project's changes, the newest first, and under which keys something can't be read."""

    entries: list[ChangeEntry]
    damaged: list[str]


def author_put(env: str, project: str, author: ChangeAuthor) -> Put:
    """To be put in the wish's transaction."""
    said = {"by": author.by[:MOST_TEXT], "via": author.via[:MOST_TEXT], "replaced": author.replaced}
    return Put(names.key(env, "authors", project), write_object(said))


def author_of(found: KeyValue | None, revision: int, since: int = 0) -> ChangeAuthor | None:
    """Who wrote or deleted the wish at this revision, as far as he said so.

    Where nobody saw when it was deleted, `revision` is 0: then it was whoever deleted one `since`.
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


def entry_put(env: str, project: str, entry: ChangeEntry) -> Put:
    """To be put in the transaction of what is accepted."""
    key = names.key(env, "history", project, entry.number % KEPT)
    return Put(key, write_object(msgspec.to_builtins(entry)))


def entry(
    before: Accepted | None, after: Accepted | None, revision: int, at: str, author: ChangeAuthor | None
) -> ChangeEntry | None:
    """None if nothing has changed but the revision."""
    found = changes(before, after)
    if not found:
        return None
    number = after.number if after is not None else before.number + 1 if before is not None else 0
    by, via = (None, None) if author is None else (author.by, author.via)
    return ChangeEntry(number, revision, at, by, via, found)


def changes(before: Accepted | None, after: Accepted | None) -> dict[str, tuple[Any, Any]]:
    """Field -> (before, after). Of a topic that goes, `deleted` alone: from true to None."""
    if after is None:
        return {"deleted": (True, None)}
    now = _fields(after)
    if before is None:
        return {name: (None, _short(now[name])) for name in _worth_telling(after)}
    was = _fields(before)
    return {name: (_short(was[name]), _short(value)) for name, value in now.items() if was[name] != value}


def read_history(env: str, project: str, items: Iterable[KeyValue]) -> History:
    """From what stands in etcd, where anyone may have written."""
    ordered = sorted(items, key=lambda item: item.mod_revision, reverse=True)
    found = {item.key: _read(item) for item in ordered if _slot(env, project, item) is not None}
    damaged = sorted(item.key for item in ordered if found.get(item.key) is None)
    return History([entry for entry in found.values() if entry is not None], damaged)


async def next_numbers(coordination: Coordination, env: str, projects: Collection[str]) -> dict[str, int]:
    """Of those projects that have a history, the number that comes after it: one made anew goes on behind what it was.

    To be asked for projects of which nothing is accepted: else `accepted/` has the number. Raises CoordinationError.
    """
    named, found = [*projects], dict[str, int]()
    for start in range(0, len(named), _AT_ONCE):
        some = named[start : start + _AT_ONCE]
        if len(some) > 1 and await _have_none(coordination, env, some):
            continue
        told = await asyncio.gather(*(coordination.list(names.key(env, "history", each, "")) for each in some))
        numbers = (next_number(env, project, listing.items) for project, listing in zip(some, told, strict=True))
        found |= {project: number for project, number in zip(some, numbers, strict=True) if number is not None}
    return found


async def _have_none(coordination: Coordination, env: str, projects: Iterable[str]) -> bool:
    """Whether none of them has a history: asked at once, as thousands may be made at a time. One begins with slot 0."""
    return (await coordination.txn([Absent(names.key(env, "history", each, 0)) for each in projects], [])).succeeded


def next_number(env: str, project: str, items: Iterable[KeyValue]) -> int | None:
    """None where there is no entry that counts: one in its own slot."""
    numbers = [
        entry.number
        for slot, entry in _slots(env, project, items)
        if 0 <= entry.number < _MOST_NUMBER and entry.number % KEPT == slot
    ]
    return max(numbers) + 1 if numbers else None


def _slots(env: str, project: str, items: Iterable[KeyValue]) -> Iterator[tuple[int, ChangeEntry]]:
    """What can be read, with the last part of its key."""
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
    # Where nobody leads the wish is written in the same transaction, and nobody knows its revision before.
    revision = found.revision or item.mod_revision
    return msgspec.structs.replace(found, by=by, at=_plain(found.at), revision=revision)


def _fields(accepted: Accepted) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(accepted.topic)
    return {**fields, "deleted": accepted.deleted}


def _short(value: Any) -> Any:
    """A `push` may have many headers, and 50 entries are kept of each project."""
    if not isinstance(value, dict) or (size := len(msgspec.json.encode(value))) <= _MOST_VALUE_BYTES:
        return value
    return f"{size:,} bytes"


def _worth_telling(accepted: Accepted) -> list[str]:
    topic = accepted.topic
    return [name for name in FIELDS if name not in _DEFAULTS or getattr(topic, name) != _DEFAULTS[name]]


def _plain(text: str) -> str:
    """It may come from anybody and goes to a terminal."""
    shown = text[:MOST_TEXT]
    return shown if shown.isprintable() else repr(shown)
