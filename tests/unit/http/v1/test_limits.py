"""Limits: a body that is too large is refused before it is read, whatever the client does."""

import asyncio
import contextlib
import json

import pytest

from tests.support.http.api_world import MESSAGES, ApiWorld
from tests.support.until import until

GIGABYTE = 1_000_000_000
KINDS = ["application/json", "application/x-ndjson", "application/octet-stream"]


async def exchange(world, head, body=b"", most=64 << 20):
    """Send the head, then `body` again and again until the server closes. Returns status, document and bytes sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(head)
    answering = asyncio.create_task(_read(reader))
    sent = 0
    try:
        while body and sent < most and not answering.done():
            writer.write(body)
            await writer.drain()
            sent += len(body)
    except ConnectionError:
        pass
    answer = await asyncio.wait_for(answering, 30)
    writer.close()
    status, _, rest = answer.partition(b"\r\n")
    return int(status.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2]), sent


async def _read(reader):
    """Read to the end, even if that is a reset."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65_536):
            found += piece
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_gigabyte_is_refused_in_one_sentence_before_it_is_read(world, kind):
    """The client needn't send it to get the answer."""
    status, document, _ = await exchange(world, world.head(kind, GIGABYTE))
    assert (413, "PayloadTooLarge") == (status, document["type"])
    assert "the body of this request has 1,000,000,000 bytes: " in document["error"]
    assert [] == world.stored()


@pytest.mark.parametrize("kind", KINDS)
async def test_client_that_sends_a_gigabyte_anyway_gets_the_answer(world, kind):
    """After a few megabytes the connection is closed."""
    status, _, sent = await exchange(world, world.head(kind, GIGABYTE), b"x" * 65_536)
    assert 413 == status
    assert sent < 32 << 20


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
async def test_body_of_unknown_length_is_refused_at_the_limit(world, kind):
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    status, document, sent = await exchange(world, world.head(kind, None), chunk)
    assert (413, "PayloadTooLarge") == (status, document["type"])
    assert "the body of this request is too long: one message" in document["error"]
    assert sent < 32 << 20


async def test_client_that_asks_before_it_sends_is_answered_at_once(world):
    """curl does so for large bodies: `Expect: 100-continue`."""
    head = world.head("application/json", GIGABYTE, "Expect: 100-continue")
    assert 413 == (await exchange(world, head))[0]
    small = world.head("application/octet-stream", 1, "Expect: 100-continue", "Connection: close")
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(small)
    assert b"HTTP/1.1 100" in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"x")
    assert b"HTTP/1.1 201" in await reader.read()
    writer.close()


async def test_gigabyte_without_the_token_is_not_read_either(world):
    head = world.head("application/json", GIGABYTE).replace(b"Authorization", b"X-Other")
    status, _, sent = await exchange(world, head, b"x" * 65_536)
    assert 401 == status
    assert sent < 32 << 20


async def test_refused_request_leaves_the_connection_usable(world):
    """Its small body is read: a client that keeps connections isn't surprised."""
    for _ in range(3):
        assert 404 == (await world.call("POST", "/api/v1/projects/nobody/messages", {"body": "x"})).status
        assert 201 == (await world.call("POST", MESSAGES, {"body": "x"})).status


async def test_slow_body_does_not_hold_its_place():
    async with ApiWorld().serve(idle_s=0.2, at_once=1) as world:
        status, document, _ = await exchange(world, world.head("application/json", 100) + b'{"body')
        assert (408, "EvenlaneError") == (status, document["type"])
        assert 201 == (await world.call("POST", MESSAGES, {"body": "x"})).status


async def test_memory_for_bodies_is_bounded():
    """A request that is alone is always read; the next one must fit."""
    async with ApiWorld().serve(held_bytes=1_000) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        body = json.dumps({"body": "x" * 2_000}).encode()
        writer.write(world.head("application/json", len(body), "Connection: close") + body[:1_000])

        async def is_full():
            answer = await world.call("POST", MESSAGES, {"body": "x"})
            return answer if answer.status != 201 else None

        answer = await until(is_full)
        assert 503 == answer.status
        assert "the requests that this node is reading may hold 1,000 bytes" in answer.document["error"]
        writer.write(body[1_000:])
        assert b"HTTP/1.1 201" in await reader.read()
        writer.close()
        assert 201 == (await world.call("POST", MESSAGES, {"body": "x"})).status
