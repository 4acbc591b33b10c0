"""Version 1 of the HTTP API on real servers: a topic is created, and messages are put and handled."""

import asyncio
import json

import aiohttp
import psutil
import pytest

from tests.ledger.world import ProcessWorld
from tests.support.http.serving import TOKEN
from tests.support.until import until

pytestmark = pytest.mark.real

MESSAGES = "/api/v1/projects/acme/messages"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def world(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    async with ProcessWorld(tmp_path, duplicate_window=2) as world:
        yield world


@pytest.fixture
async def client(world):
    world.node_a = await world.node(http_port=0, http_token_file=world.folder / "token")
    async with aiohttp.ClientSession(await world.address(), headers=HEADERS) as client:
        yield client


async def call(client, method, path, body=None, kind="application/json"):
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    async with client.request(method, path, data=data, headers={"Content-Type": kind}) as response:
        return response.status, response.headers, await response.json()


async def test_topic_and_messages_from_http_reach_the_handler(world, client):
    """Whoever has no Python creates a topic, and puts one message and many; the node handles each of them."""
    status, headers, topic = await call(client, "PUT", "/api/v1/topics/acme", {"qps": 1_000})
    assert (200, True) == (status, topic["accepted"]), topic
    assert f'"{topic["revision"]}"' == headers["ETag"]

    status, _, receipt = await call(client, "POST", MESSAGES, {"body": "x", "id": "one"})
    assert (201, "one") == (status, receipt["id"]), receipt
    lines = b"".join(b'{"body": "x", "id": "m%d", "priority": "low"}\n' % number for number in range(500))
    status, _, result = await call(client, "POST", MESSAGES, lines + b"{broken\n", "application/x-ndjson")
    assert (200, 500, 0, [501]) == (
        status, result["put"], result["duplicates"], [refusal["line"] for refusal in result["refused"]],
    )  # fmt: skip
    status, _, receipt = await call(client, "POST", MESSAGES + "?id=raw", b"x", "application/octet-stream")
    assert (201, False) == (status, receipt["duplicate"])
    expected = {"one", "raw", *(f"m{number}" for number in range(500))}
    await until(lambda: expected <= {*world.ids()}, what="the handler to get each message")


async def test_paused_topic_and_ended_node(world, client):
    """A pause by HTTP is in effect for the node. A node ends clean while a client still sends lines, and answers it."""
    await call(client, "PUT", "/api/v1/topics/acme", {"qps": 1_000})
    status, _, topic = await call(client, "POST", "/api/v1/topics/acme/pause")
    assert (200, "paused") == (status, topic["in_force"]["state"])
    status, _, receipt = await call(client, "POST", MESSAGES, {"body": "x", "id": "waits"})
    assert (201, "waits") == (status, receipt["id"]), receipt

    async def count_waiting():
        explained = (await call(client, "GET", "/api/why/acme"))[2]
        return explained["state"], sum(node["waiting"] for node in explained["nodes"])

    await _until_equal(count_waiting, ("paused", 1))
    assert "waits" not in {*world.ids()}
    status, _, error = await call(client, "POST", "/api/v1/projects/nobody/messages", {"body": "x"})
    assert (404, "UnknownProject") == (status, error["type"])

    async def lines():
        yield b'{"body": "x"}\n'
        await _until_equal(count_waiting, ("paused", 2))
        ending.append(asyncio.create_task(world.node_a.stop()))
        await asyncio.wait(ending)

    ending = []
    async with client.post(MESSAGES, data=lines(), headers={"Content-Type": "application/jsonl"}) as response:
        document = await response.json()
    assert (503, 1) == (response.status, document["put"]), document
    assert "is shutting down and takes no more messages" in document["error"]
    assert [0] == await asyncio.gather(*ending)
    assert 0 == world.node_a.logged("Traceback")


@pytest.mark.full
async def test_many_lines_need_little_memory_of_the_node(world, client):
    """25,000 lines, 100 MB: they are never all in memory."""
    await call(client, "PUT", "/api/v1/topics/acme", {"qps": 100_000})
    await call(client, "POST", MESSAGES, {"body": "x", "id": "first"})

    async def lines():
        for number in range(25_000):
            yield b'{"body": "%s", "id": "m%d"}\n' % (b"x" * 4_000, number)

    node = psutil.Process(world.node_a.pid)
    before = node.memory_info().rss
    async with client.post(MESSAGES, data=lines(), headers={"Content-Type": "application/jsonl"}) as response:
        assert 25_000 == (await response.json())["put"]
    assert node.memory_info().rss - before < 60 << 20


async def _until_equal(read, expected):
    async def is_equal():
        return await read() == expected

    await until(is_equal)
