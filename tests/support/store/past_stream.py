"""Fills a stream of a real server with messages that were stored in the past.

A server stamps each message with the time of its arrival, except in a mirror, which keeps the origin's time. So the
stream is a mirror, and this module plays its origin: it answers the mirror's request for a consumer, and delivers. The
server rejects a client's messages with a reply below `$JS.ACK`, so this module delivers as a leaf node.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import nats

from tests.support.store.api import ask
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from evenlane.engine.core.ports import Stored

_ORIGIN, _CONSUMER, _API = "ORIGIN", "mirror", "ORIGIN.API"
_AT_ONCE = 1_000
_WAIT_S = 60.0
_HELLO = b'CONNECT {"name":"origin","headers":true,"jetstream":false}\r\nPING\r\n'


def leaf_config(port: int) -> str:
    """Return the part of the server's configuration that `fill_past_stream` needs."""
    return f"leafnodes {{ host: 127.0.0.1, port: {port}, no_advertise: true }}"


async def fill_past_stream(url: str, leaf_port: int, stream: str, subject: str, messages: Sequence[Stored]) -> None:
    """Create the stream on the server at `url`, and store the bodies of these messages with their times and sequences,
    which must be 1, 2, 3... Their subject is one below `subject`; headers aren't supported.
    """
    async with AsyncExitStack() as open_connections:
        client = await nats.connect(url)
        open_connections.push_async_callback(client.close)
        reader, writer = await asyncio.open_connection("127.0.0.1", leaf_port)
        open_connections.callback(writer.close)
        writer.write(_HELLO)
        requests = await client.subscribe(f"{_API}.CONSUMER.CREATE.>")
        mirror = {"name": _ORIGIN, "external": {"api": _API, "deliver": subject}}
        config = {"name": stream, "retention": "limits", "storage": "file", "allow_direct": True, "mirror": mirror}
        await ask(client, f"STREAM.CREATE.{stream}", config)
        target = await _answer_consumer_request(client, await requests.next_msg(_WAIT_S))
        await asyncio.wait_for(_wait_for_interest(reader, target), _WAIT_S)
        await _deliver(writer, target, messages)

        async def is_complete() -> bool:
            state = (await ask(client, f"STREAM.INFO.{stream}", {}))["state"]
            return len(messages) == state["last_seq"] == state["messages"]

        await until(is_complete, _WAIT_S, "all messages to be stored")


async def _answer_consumer_request(client: Client, request: Msg) -> str:
    """Answer as an origin does. Returns the subject to deliver to."""
    config = json.loads(request.data)["config"]
    nothing = {"consumer_seq": 0, "stream_seq": 0}
    info = {
        "type": "io.nats.jetstream.api.v1.consumer_create_response", "stream_name": _ORIGIN, "name": _CONSUMER,
        "created": "2026-01-01T00:00:00Z", "config": config, "delivered": nothing, "ack_floor": nothing,
    }  # fmt: skip
    await client.publish(request.reply, json.dumps(info).encode())
    return str(config["deliver_subject"])


async def _wait_for_interest(reader: asyncio.StreamReader, subject: str) -> None:
    """Return once the server wants messages of this subject from the leaf node."""
    line = b""
    while following := await reader.readline():
        line = following
        if line.split() == [b"LS+", subject.encode()]:
            return
    raise AssertionError(f"the server has closed the leaf node's connection: {line!r}")


async def _deliver(writer: asyncio.StreamWriter, subject: str, messages: Sequence[Stored]) -> None:
    for message in messages:
        assert not message.headers
        position = f"{message.sequence}.{message.sequence}.{message.at}.0"
        head = f"LMSG {subject} $JS.ACK.{_ORIGIN}.{_CONSUMER}.1.{position} {len(message.body)}\r\n"
        writer.write(head.encode() + message.body + b"\r\n")
        if message.sequence % _AT_ONCE == 0:
            await writer.drain()
    await writer.drain()
