"""The replication port on JetStream."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.core.ports import Refused
from evenlane.engine.core.replication_port import StreamReplicas
from evenlane.engine.store.jetstream.api.responses import await_call
from evenlane.engine.store.jetstream.api.values import StreamInfo, StreamPage
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.replies import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from evenlane.engine.store.jetstream.client.options import NatsOptions

_ANSWER_S = 30.0
_NOT_CLUSTERED = 10074
_TOO_FEW_SERVERS = (10005, 10023)  # no suitable peers; insufficient resources


class JetStreamReplication:
    """See `evenlane.engine.core.replication_port.Replication`."""

    def __init__(self, options: NatsOptions, name: str, env: str) -> None:
        self._connection, self._env = Connection(options, name), env
        lanes, of_subscriptions = rf"(LANES|LATER)_{env}_\d+", rf"(SETTLED|AGAIN|DEAD|METER)_{env}_[A-Za-z0-9-]+"
        self._is_ours = re.compile(f"{lanes}|{of_subscriptions}").fullmatch

    async def open(self) -> None:
        await self._connection.open()

    async def list_streams(self) -> list[StreamReplicas]:
        others = names.other_streams(self._env)
        found: list[StreamReplicas] = []
        listed = 0
        while True:
            call = self._connection.api_as(StreamPage, "STREAM.LIST", {"offset": listed}, timeout=_ANSWER_S)
            page = await await_call(call)
            listed += len(page.entries or ())
            found += [
                StreamReplicas(stream.name, stream.replicas, stream.current)
                for stream in page.streams
                if stream.name in others or self._is_ours(stream.name)
            ]
            if listed >= page.total or not page.entries:
                return sorted(found)

    async def set_replicas(self, stream: str, replicas: int) -> None:
        info = await await_call(self._connection.api_as(StreamInfo, f"STREAM.INFO.{stream}"))
        config = info.config | {"num_replicas": replicas}
        metadata = {key: text for key, text in (config.get("metadata") or {}).items() if not key.startswith("_nats.")}
        update = self._connection.api(f"STREAM.UPDATE.{stream}", config | {"metadata": metadata}, timeout=_ANSWER_S)
        await await_call(_explained(update, stream, replicas))

    async def close(self) -> None:
        await self._connection.close()


async def _explained(update: Awaitable[object], stream: str, replicas: int) -> None:
    try:
        await update
    except ApiError as error:
        if error.err_code == _NOT_CLUSTERED:
            raise Refused(
                f"stream {stream} can't have {replicas} replicas: this NATS server isn't part of a cluster"
            ) from error
        if error.err_code in _TOO_FEW_SERVERS:
            raise Refused(
                f"stream {stream} can't have {replicas} replicas: the NATS cluster needs {replicas} servers that run"
                " and have room"
            ) from error
        raise
