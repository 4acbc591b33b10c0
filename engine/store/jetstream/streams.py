"""Creates the streams, and checks existing ones. The first process that needs a stream creates it; every process checks
it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.errors import ConfigError
from evenlane.engine.store.jetstream.api import queue_limit
from evenlane.engine.store.jetstream.api.responses import NO_STREAM
from evenlane.engine.store.jetstream.api.values import StreamInfo, StreamPage
from evenlane.engine.store.jetstream.client.replies import ApiError
from evenlane.engine.store.jetstream.stream_configs import SACRED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.store.jetstream.client.connection import Connection

_SECOND = 1_000_000_000
_OTHER_CONFIG, _OTHER_SUBJECTS = 10058, 10065  # a stream of this name, or with these subjects, exists
_NO_FILES = 10049  # the server reports the underlying system error only in its own log
_AT_ONCE = 16
_LISTINGS, _LIST_S = 3, 10.0
_NO_STORAGE = (10002, 10023, 10047)  # of the account, or of the server
_UNAVAILABLE = 503  # no leader at the moment, for example: worth a retry
_AGREE_S = 30.0  # the longest time for a cluster's servers to agree on a new stream
_INFO_S, _PAUSE_S = 1.0, 0.05  # a request's time to be answered, and the pause before the next one

_FREE_FOR_METER = ("max_age", "max_msgs", "max_bytes", "discard")


class StreamListing(NamedTuple):
    """The configs of streams by name, and the names of those whose leader doesn't answer at the moment."""

    configs: dict[str, dict[str, Any]]
    silent: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return self.silent.union(self.configs)


class Ensured(NamedTuple):
    """The replicas of the streams that were asked for, and the names of all streams that existed before."""

    replicas: dict[str, int]
    found: frozenset[str]


async def ensure(
    connection: Connection,
    desired: Sequence[dict[str, Any]],
    required: Sequence[dict[str, Any]] = (),
    missing_error: Callable[[str], ConfigError] = ConfigError,
) -> Ensured:
    """Create missing streams, and check existing ones. Raises ConfigError, which names stream, setting and the right
    value.

    Those of `required` are only checked: for the first that is missing, raises `missing_error(its name)`.
    """
    listing = await list_streams(connection)
    present = listing.configs
    for config in required:
        if config["name"] not in present:
            raise missing_error(config["name"])
    for config in (*required, *desired):
        if config["name"] in present:
            check(config, queue_limit.strip_mark(present[config["name"]]))
    missing = [config for config in desired if config["name"] not in present]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def make(config: dict[str, Any]) -> None:
        async with gate:
            try:
                await _create(connection, config)
            except ApiError as error:
                await _explain(connection, config, error)
            await _wait_for_agreement(connection, config["name"])

    await asyncio.gather(*(make(config) for config in missing))
    await queue_limit.adjust(connection, desired, present)
    replicas = {
        config["name"]: int(present.get(config["name"], config).get("num_replicas", 1))
        for config in (*required, *desired)
    }
    return Ensured(replicas, listing.names)


async def remove(connection: Connection, name: str) -> None:
    """Delete a stream, if it exists. Raises ApiError, TimeoutError, Disconnected."""
    try:
        await connection.api(f"STREAM.DELETE.{name}", timeout=30)
    except ApiError as error:
        if error.err_code != NO_STREAM:
            raise


async def can_create(connection: Connection, config: dict[str, Any]) -> bool:
    """Whether the server has the storage that a stream's config demands: creates the stream, and deletes it. Raises
    ApiError, TimeoutError, Disconnected.
    """
    try:
        await _create(connection, config)
    except ApiError as error:
        if error.err_code in _NO_STORAGE:
            return False
        raise
    await remove(connection, config["name"])
    return True


async def _create(connection: Connection, config: dict[str, Any]) -> None:
    """Create a stream. nats-server removes the folder of all streams with the last one: a creation at the same moment
    finds no folder, and the next one does.
    """
    verb = f"STREAM.CREATE.{config['name']}"
    try:
        await connection.api(verb, config, timeout=30)
    except ApiError as error:
        if error.err_code != _NO_FILES:
            raise
        await connection.api(verb, config, timeout=30)


async def _wait_for_agreement(connection: Connection, name: str) -> None:
    """Wait until the servers of a cluster agree on a stream that this process, or another at the same moment, has
    created. Until then they deny that it exists, or don't answer. Raises ApiError, TimeoutError, Disconnected.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _AGREE_S
    while loop.time() < deadline:
        try:
            await connection.api_as(StreamInfo, f"STREAM.INFO.{name}", timeout=_INFO_S)
        except TimeoutError:
            pass
        except ApiError as error:
            if error.err_code != NO_STREAM and error.code != _UNAVAILABLE:
                raise
        else:
            return
        await asyncio.sleep(_PAUSE_S)
    raise TimeoutError(f"the NATS servers don't agree on the new stream {name} within {_AGREE_S:g} s")


def check(desired: dict[str, Any], found: dict[str, Any]) -> None:
    """Raise ConfigError for a setting that would lose messages, or records of the settle log."""
    if found.get("persist_mode") == "async" and not desired["name"].startswith("METER_"):
        # not among `SACRED`, because servers before 2.12 refuse a config that has the field
        raise ConfigError(
            f"stream {desired['name']} has persist_mode 'async', which acknowledges messages before they are written:"
            " it must be 'default'"
        )
    free = _FREE_FOR_METER if desired["name"].startswith("METER_") else ()
    for setting in ("subjects", *SACRED):
        if setting in free:
            continue
        right = desired[setting]
        if setting == "max_age" and right:
            continue  # retention may be changed at runtime, as by `evenlane dlq keep`
        actual = found.get(setting, False if isinstance(right, bool) else right)
        if setting == "subjects":
            actual, right = sorted(actual), sorted(right)
        if actual != right:
            raise ConfigError(
                f"stream {desired['name']} has {setting} {actual!r}, which would lose messages: it must be {right!r}"
            )
    limit = queue_limit.limit_of(found)
    if desired["name"].startswith(("BUSY_", "METER_")):
        return  # any limit per subject is fine: BUSY has one record per process, METER is the operator's choice
    if limit > 0 and not (desired["name"].startswith("LANES_") and found.get("discard_new_per_subject")):
        raise ConfigError(
            f"stream {desired['name']} has {queue_limit.LIMIT} {limit}, which would lose messages: it must be -1"
        )
    window, found_window = desired.get("duplicate_window", 0), found.get("duplicate_window", 0)
    if window > found_window:  # a producer would retry for longer than the server remembers ids
        raise ConfigError(
            f"stream {desired['name']} has a duplicate window of {found_window / _SECOND:g} s, less than the"
            f" duplicate_window of {window / _SECOND:g} s set here: set {found_window / _SECOND:g}s"
        )


async def _explain(connection: Connection, config: dict[str, Any], error: ApiError) -> None:
    if error.err_code == _OTHER_CONFIG:
        await _wait_for_agreement(connection, config["name"])
    if error.err_code in (_OTHER_CONFIG, _OTHER_SUBJECTS):
        try:
            info = await connection.api_as(StreamInfo, f"STREAM.INFO.{config['name']}")
        except ApiError:
            pass  # the name is free: the subjects belong to another stream
        else:
            check(config, queue_limit.strip_mark(info.config))  # another process has created it at the same moment
            return
    if error.code == _UNAVAILABLE:
        raise error
    hint = ": does the server have disk space and write permission?" if error.err_code == _NO_FILES else ""
    raise ConfigError(f"stream {config['name']} can't be created: {error}{hint}") from error


async def _list_page(connection: Connection, offset: int) -> StreamPage:
    """A request that arrives while the servers elect a leader is never answered, so it is repeated."""
    for _ in range(_LISTINGS - 1):
        with contextlib.suppress(TimeoutError):
            return await connection.api_as(StreamPage, "STREAM.LIST", {"offset": offset}, timeout=_LIST_S)
    return await connection.api_as(StreamPage, "STREAM.LIST", {"offset": offset}, timeout=_LIST_S)


async def list_streams(connection: Connection) -> StreamListing:
    """List all streams. Raises ApiError, TimeoutError, Disconnected."""
    found: dict[str, dict[str, Any]] = {}
    silent: set[str] = set()
    listed = 0
    while True:
        page = await _list_page(connection, listed)
        listed += len(page.entries or ())
        found |= {stream.name: stream.config for stream in page.streams}
        silent.update(page.missing or ())
        if listed >= page.total or not page.entries:
            return StreamListing(found, frozenset(silent))
