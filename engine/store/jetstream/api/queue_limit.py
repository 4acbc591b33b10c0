"""Sets the most messages that a queue may hold, which the server enforces: `max_msgs_per_subject`, by refusing new
ones.

The limit of an existing stream is raised by a plain update. Lowering is different: nats-server deletes the oldest
messages of each subject that holds more than the new limit, with or without `discard_new_per_subject` (2.15.1). So the
limit is lowered only if no subject holds more, and between check and update the stream takes no puts: a `max_msgs` of 1
refuses them all (and deletes nothing under `discard: new`), and producers retry. A mark in the stream's metadata names
the process at work; a later process completes what one that died has left behind.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import structlog
from nats.nuid import NUID

from evenlane.engine.core.ports import UNLIMITED
from evenlane.engine.store.jetstream.api.values import StreamInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.store.jetstream.client.connection import Connection

_log = structlog.get_logger(__name__)

LIMIT = "max_msgs_per_subject"
_MARK = "evenlane-lowering"
_STILL_S = 0.3  # without a new message, until puts in transit between replicas have ended
_TRUSTED_S = 10.0  # how long a count is relied on
_ABANDONED_S = 30.0
_AT_ONCE = 16


def settings(limit: int) -> dict[str, Any]:
    """The config of a stream with this limit."""
    return {LIMIT: limit, "discard_new_per_subject": True} if limit > 0 else {LIMIT: UNLIMITED}


def limit_of(config: dict[str, Any]) -> int:
    return int(config.get(LIMIT) or UNLIMITED)


def strip_mark(config: dict[str, Any]) -> dict[str, Any]:
    """The config without the changes of a process that is lowering the limit."""
    metadata: dict[str, str] = config.get("metadata") or {}
    if _MARK not in metadata:
        return config
    return config | {"max_msgs": -1, "metadata": {key: text for key, text in metadata.items() if key != _MARK}}


async def adjust(connection: Connection, desired: Iterable[dict[str, Any]], present: dict[str, dict[str, Any]]) -> None:
    """Give existing streams the desired limit, unless messages would be lost by it."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(found: dict[str, Any], limit: int) -> None:
        async with gate:
            if limit < 0 or 0 < limit_of(found) <= limit:
                await _update(connection, _with_limit(strip_mark(found), limit))
            else:
                await _lower(connection, found, limit)

    await asyncio.gather(
        *(
            one(present[config["name"]], limit_of(config))
            for config in desired
            if LIMIT in config
            and config["name"] in present
            and _is_different(present[config["name"]], limit_of(config))
        )
    )


def _is_different(found: dict[str, Any], limit: int) -> bool:
    mark = (found.get("metadata") or {}).get(_MARK)
    if mark is None:
        return limit_of(found) != limit
    since = mark.partition(" ")[0]  # perhaps by another machine's clock: being early does no harm
    return not since.isdigit() or time.time() - int(since) > _ABANDONED_S


def _with_limit(config: dict[str, Any], limit: int) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "discard_new_per_subject"} | settings(limit)


async def _lower(connection: Connection, found: dict[str, Any], limit: int) -> None:
    before, name = strip_mark(found), found["name"]
    if before is found and (subject := await _above(connection, name, limit)):
        _log.warning(
            "max_queue_backlog isn't enforced on this stream yet: a queue holds more, and the server would delete it",
            stream=name, limit=limit, subject=subject,
        )  # fmt: skip
        return
    mark = f"{time.time():.0f} {NUID().next().decode()}"
    since = time.monotonic()
    after = before
    try:
        await _update(connection, before | {"max_msgs": 1, "metadata": (before.get("metadata") or {}) | {_MARK: mark}})
        await _still(connection, name)
        if not await _above(connection, name, limit):
            after = _with_limit(before, limit)
    finally:
        info = await connection.api_as(StreamInfo, f"STREAM.INFO.{name}")
        if (info.config.get("metadata") or {}).get(_MARK) == mark:  # unless another process is at work now
            await _update(connection, after if time.monotonic() - since < _TRUSTED_S else before)


async def _still(connection: Connection, name: str) -> None:
    last = -1
    while (info := await connection.api_as(StreamInfo, f"STREAM.INFO.{name}")).state.last_seq != last:
        last = info.state.last_seq
        await asyncio.sleep(_STILL_S)


async def _above(connection: Connection, name: str, limit: int) -> str:
    """A subject that holds more than `limit`, "" if there is none."""
    seen = 0
    while True:
        request = {"subjects_filter": ">", "offset": seen}
        info = await connection.api_as(StreamInfo, f"STREAM.INFO.{name}", request, timeout=30)
        page = info.state.subjects or {}
        over = next((subject for subject, count in page.items() if count > limit), "")
        seen += len(page)
        if over or not page or seen >= info.total:
            return over


async def _update(connection: Connection, config: dict[str, Any]) -> None:
    metadata = {key: text for key, text in (config.get("metadata") or {}).items() if not key.startswith("_nats.")}
    await connection.api(f"STREAM.UPDATE.{config['name']}", config | {"metadata": metadata}, timeout=30)
