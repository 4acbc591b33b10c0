"""A message to put, and the outcome of a put."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from evenlane.engine.core.ports import Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


# A failed put is in a list of results as the error that `Producer.put` would have raised.
Outcome = Receipt | Exception


class Put(msgspec.Struct, eq=False, gc=False):
    """One message to put; None means omitted.

    `body` is bytes, or a msgspec Struct, a pydantic model, an attrs or data class, a dict or a list. Such an object is
    encoded as JSON, or as msgpack if a header `Content-Type` says so; without that header, JSON's is added.

    `delay` and `ttl` are seconds, `due` is unix ns or a datetime with a time zone; `delay` and `due` exclude each
    other. Messages with the same key go to the same group. `group` is in place of a `key`; only a put with an `id` may
    have both, to try again in the group that an error names. Within the duplicate window, an `id` is stored once per
    project.
    """

    project: str
    body: Any
    priority: str | None = None
    key: str | None = None
    group: int | None = None
    delay: float | None = None
    due: int | datetime | None = None
    ttl: float | None = None
    id: str | None = None
    headers: Mapping[str, str] | None = None


def check_done(done: object) -> None:
    """Raise TypeError unless this can be called with a put's number and outcome."""
    if not callable(done):
        raise TypeError(
            f"done must be a function of a put's number and outcome, and it is of type {type(done).__name__}"
        )


def check_iterable(puts: object, *, is_sync: bool = False) -> None:
    """Raise TypeError unless these are many puts, or asynchronous ones where they must not be."""
    if isinstance(puts, Put):
        raise TypeError("many puts are needed, and this is one Put: give a list of puts, or use `put`")
    if isinstance(puts, Iterable):
        return
    if not isinstance(puts, AsyncIterable):
        raise TypeError(f"many puts are needed, such as a list of Put, and this is of type {type(puts).__name__}")
    if is_sync:
        raise TypeError("many puts are needed without `async`, such as a list of Put: `Producer` takes these")
