"""Finds what a power cut, or the loss of a disk, would take of what the servers have acknowledged.

A client can't ask nats-server whether it syncs before it acknowledges. Its monitoring port tells (`/varz`).
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from evenlane.engine.base.durations import format_duration
from evenlane.engine.base.http_body import read_body
from evenlane.engine.base.plural import format_count
from evenlane.engine.core.wire.decode_error import UNREADABLE

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

_ANSWER_S = 2.0
_MOST_BYTES = 1 << 20
_SECOND = 1_000_000_000


class ServerSync(NamedTuple):
    """When a server writes to its disk: before each acknowledgement (`always`), or every `interval_s` seconds."""

    server: str
    always: bool
    interval_s: float


class Unknown(NamedTuple):
    """A monitoring address that didn't tell, and why."""

    url: str
    why: str


class Storage(NamedTuple):
    """How the streams are stored: `replicas` by stream, as the server reports them. `wanted` replicas are set for new
    streams. `is_local`: the servers are on this machine, as for a demo or a test.
    """

    kind: str
    replicas: Mapping[str, int]
    wanted: int
    is_local: bool


def find_risks(storage: Storage, found: Sequence[ServerSync | Unknown]) -> list[str]:
    """What may lose acknowledged messages, in one sentence each."""
    if storage.kind == "memory":
        return ["the streams are in memory (storage): their messages end with their servers"]
    if not found and not storage.is_local:
        return [*_replica_risks(storage), "whether the NATS servers sync isn't known: set nats_monitor"]
    return [*_replica_risks(storage), *filter(None, map(_sync_risk, found))]


def _replica_risks(storage: Storage) -> list[str]:
    few = [name for name, replicas in storage.replicas.items() if replicas < storage.wanted]
    if few:
        return [
            (
                f"{format_count(len(few), 'stream', 'has', 'have')} fewer than {storage.wanted} replicas, for example"
                f" {min(few)}: run `evenlane streams migrate --replicas {storage.wanted}`"
            )
        ]
    if storage.wanted == 1 and not storage.is_local and min(storage.replicas.values(), default=1) == 1:
        return ["each stream is on one server (replicas 1), and lost with its disk: production needs 3 replicas"]
    return []


def _sync_risk(found: ServerSync | Unknown) -> str | None:
    if isinstance(found, Unknown):
        return f"whether the NATS server at {found.url} syncs isn't known: {found.why} (nats_monitor)"
    if found.always:
        return None
    return (
        f"the NATS server {found.server} syncs to its disk every {format_duration(found.interval_s)}: a power cut loses"
        " what it has acknowledged since. Set sync_interval: always in its jetstream block"
    )


def is_local(servers: Sequence[str]) -> bool:
    """Whether all these addresses are of this machine."""
    return all(_is_loopback(urlsplit(server).hostname or "") for server in servers)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _JetStreamConfig(msgspec.Struct):
    sync_always: bool = False
    sync_interval: int = 0  # ns


class _JetStream(msgspec.Struct):
    config: _JetStreamConfig | None = None


class _Varz(msgspec.Struct):
    server_name: str
    jetstream: _JetStream


async def read_sync(urls: Sequence[str], tls: ssl.SSLContext | None) -> list[ServerSync | Unknown]:
    """Ask the servers' monitoring addresses."""
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        return list(await asyncio.gather(*(_read_one(client, url, tls) for url in urls)))


async def _read_one(client: aiohttp.ClientSession, url: str, tls: ssl.SSLContext | None) -> ServerSync | Unknown:
    try:
        async with client.get(f"{url}/varz", ssl=tls if tls is not None else True) as response:
            varz = msgspec.json.decode(await read_body(response, _MOST_BYTES), type=_Varz)
    except TimeoutError:
        return Unknown(url, f"no answer within {_ANSWER_S:g} s")
    except (aiohttp.ClientError, OSError) as error:
        return Unknown(url, str(error) or type(error).__name__)
    except UNREADABLE:
        return Unknown(url, "this isn't the monitoring address of a NATS server")
    config = varz.jetstream.config
    if config is None:
        return Unknown(url, "it has no JetStream")
    return ServerSync(varz.server_name, config.sync_always, config.sync_interval / _SECOND)
