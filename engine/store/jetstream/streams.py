"""The streams: made by whoever comes first, and checked by everyone after."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.errors import ConfigError
from evenlane.engine.store.jetstream.api import queue_limit
from evenlane.engine.store.jetstream.api.values import StreamInfo, StreamPage
from evenlane.engine.store.jetstream.client.connection import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.store.jetstream.client.connection import Connection

_SECOND = 1_000_000_000
_EXISTS = (10058, 10065)  # a stream of this name, or with these subjects, stands there with another config
_NO_FILES = 10049  # of the error of its system the server says nothing but in its log
_AT_ONCE = 16
_BUSY_KEPT_S = 86_400
_UNAVAILABLE = 503  # no leader at the moment, say: worth another try

# What must be as we make it, and why: any other value loses messages, or lets a publisher do so.
_SACRED = {
    "retention": "limits",  # work-queue streams would delete what nobody has settled
    "max_age": 0,
    "max_msgs": -1,
    "max_bytes": -1,
    "discard": "new",
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
}
_FREE_FOR_METER = ("max_age", "max_msgs", "max_bytes", "discard")


def lane_config(
    env: str, lane: LaneId, storage: str, replicas: int, window_s: float, limit: int | None = None
) -> dict[str, Any]:
    """A lane stream. The duplicate window is the producer's total retry time. `limit` is for each queue (-1: none, and
    None: not known here); later streams have none, since a retry must never be refused.
    """
    depth = ".*.*.*" if lane.kind == "lanes" else ".*.*.*.*"
    limited = lane.kind == "lanes" and limit is not None
    return {
        "name": names.stream(env, lane),
        "subjects": [f"{lane.kind}.{env}.{lane.partition}{depth}"],
        "storage": storage,
        "num_replicas": replicas,
        "duplicate_window": int(window_s * _SECOND),
        "allow_direct": True,
        "max_consumers": -1,
        **_SACRED,
        **(queue_limit.settings(limit) if limited and limit is not None else {}),
    }


def dead_config(env: str, storage: str, replicas: int, window_s: float, keep_s: float) -> dict[str, Any]:
    """Dead letters: the server removes them by itself, `keep_s` after they have died."""
    return {
        "name": names.dead_stream(env),
        "subjects": [f"dead.{env}.*"],
        "storage": storage,
        "num_replicas": replicas,
        "duplicate_window": int(window_s * _SECOND),
        "allow_direct": True,
        "max_consumers": -1,
        **_SACRED,
        "max_age": int(keep_s * _SECOND),
    }


def settled_config(env: str, storage: str, replicas: int) -> dict[str, Any]:
    """The settle log; a checkpoint replaces what stood before it, by rollup of its subject."""
    return {
        "name": names.settled_stream(env),
        "subjects": [f"settled.{env}.*.*"],
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": True,
        "max_consumers": -1,
        **_SACRED,
        "allow_rollup_hdrs": True,
    }


def busy_config(env: str, storage: str, replicas: int) -> dict[str, Any]:
    """In-flight records: of each process the last one. Those of the dead are read at once or never."""
    return {
        "name": names.busy_stream(env),
        "subjects": [f"busy.{env}.*"],
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": True,
        "max_consumers": -1,
        **_SACRED,
        "discard": "old",
        "max_msgs_per_subject": 1,
        "max_age": _BUSY_KEPT_S * _SECOND,
    }


def meter_config(env: str, storage: str, replicas: int, keep_s: float) -> dict[str, Any]:
    """Nodes' records for reports. Whoever keeps the stream may bound it otherwise: reports take what is there."""
    return {
        "name": names.meter_stream(env),
        "subjects": [f"meter.{env}.>"],
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": True,
        "max_consumers": -1,
        **_SACRED,
        "discard": "old",
        "max_age": int(keep_s * _SECOND),
    }


async def ensure(connection: Connection, wanted: Sequence[dict[str, Any]]) -> None:
    """Create what isn't there, check what is; raises ConfigError naming stream, setting and what would be right."""
    present = await _present(connection)
    for config in wanted:
        if config["name"] in present:
            check(config, queue_limit.unmarked(present[config["name"]]))
    missing = [config for config in wanted if config["name"] not in present]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def make(config: dict[str, Any]) -> None:
        async with gate:
            try:
                await connection.api(f"STREAM.CREATE.{config['name']}", config, timeout=30)
            except ApiError as error:
                await _explain(connection, config, error)

    await asyncio.gather(*(make(config) for config in missing))
    await queue_limit.adjust(connection, wanted, present)


def check(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    free = _FREE_FOR_METER if wanted["name"].startswith("METER_") else ()
    for setting in ("subjects", *_SACRED):
        if setting in free:
            continue
        right = wanted[setting]
        if setting == "max_age" and right:
            continue  # of what goes by itself somebody else may have said when, as by `evenlane dlq keep`
        actual = found.get(setting, False if isinstance(right, bool) else right)
        if setting == "subjects":
            actual, right = sorted(actual), sorted(right)
        if actual != right:
            raise ConfigError(
                f"stream {wanted['name']} has {setting} {actual!r}, which would lose messages: it must be {right!r}"
            )
    limit = queue_limit.of(found)
    if wanted["name"].startswith(("BUSY_", "METER_")):
        return  # of each process one record; as many as whoever keeps it wants
    if limit > 0 and not (wanted["name"].startswith("LANES_") and found.get("discard_new_per_subject")):
        raise ConfigError(
            f"stream {wanted['name']} has {queue_limit.LIMIT} {limit}, which would lose messages: it must be -1"
        )
    window, found_window = wanted.get("duplicate_window", 0), found.get("duplicate_window", 0)
    if window > found_window:  # a producer would try again for longer than the server remembers ids
        raise ConfigError(
            f"stream {wanted['name']} has a duplicate window of {found_window / _SECOND:g} s, less than the"
            f" duplicate_window of {window / _SECOND:g} s set here: set {found_window / _SECOND:g}s"
        )


async def _explain(connection: Connection, config: dict[str, Any], error: ApiError) -> None:
    if error.err_code in _EXISTS:
        try:
            info = await connection.api_as(StreamInfo, f"STREAM.INFO.{config['name']}")
        except ApiError:
            pass  # not this name: its subjects belong to another stream
        else:
            check(config, queue_limit.unmarked(info.config))  # made by somebody else at the same moment
            return
    if error.code == _UNAVAILABLE:
        raise error
    hint = ": has its disk room, and may it write there?" if error.err_code == _NO_FILES else ""
    raise ConfigError(f"stream {config['name']} can't be made: {error}{hint}") from error


async def _present(connection: Connection) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    listed = 0
    while True:
        page = await connection.api_as(StreamPage, "STREAM.LIST", {"offset": listed}, timeout=30)
        listed += len(page.entries or ())
        found |= {stream.name: stream.config for stream in page.streams}
        if listed >= page.total or not page.entries:
            return found
