"""JSON lines by HTTP: counts and refusals, as `evenlane put --file --json` reports them."""

import asyncio

from evenlane.engine.core.ports import Full
from tests.support.http.api_world import MESSAGES, WITH_TOKEN, ApiWorld
from tests.support.until import until

LINES = [
    '{"body": "one", "id": "1"}',
    "",
    '{"project": "acme", "body": "two"}',
    "{broken",
    '{"project": "bolt", "body": "x"}',
    '{"body": "again", "id": "1"}',
    '{"body": "x", "group": 99}',
    '{"body": "x", "prio": 1}',
    '{"body": "no line end"}',
]


async def test_invalid_lines_are_listed_and_others_are_put(world):
    answer = await world.put_lines("\n".join(LINES))
    assert 200 == answer.status
    assert (3, 1) == (answer.document["put"], answer.document["duplicates"])
    found = [(refusal["line"], refusal["type"]) for refusal in answer.document["refused"]]
    assert [(4, "ConfigError"), (5, "ConfigError"), (7, "InvalidPut"), (8, "ConfigError")] == found
    assert "it isn't JSON" in answer.document["refused"][0]["error"]
    assert {b"one", b"two", b"no line end"} == {message.body for message in world.stored()}


async def test_lines_may_come_as_jsonl_in_chunks_and_empty(world):
    async def chunks():
        for piece in (b'{"body": ', b'"a"}\r\n{"bo', b'dy": "b"}\n'):
            yield piece

    headers = WITH_TOKEN | {"Content-Type": "application/jsonl"}
    async with world.client.post(MESSAGES, headers=headers, data=chunks()) as response:
        assert (200, {"put": 2, "duplicates": 0, "refused": []}) == (response.status, await response.json())
    assert (200, {"put": 0, "duplicates": 0, "refused": []}) == (await world.put_lines(" \n"))[::2]


async def test_full_backlog_refuses_lines_by_their_numbers(world):
    world.server.refuse("lanes.", Full("maximum messages exceeded"))
    answer = await world.put_lines('{"body": "x"}\n' * 3)
    assert (200, 0) == (answer.status, answer.document["put"])
    assert [(1, "BacklogFull"), (2, "BacklogFull"), (3, "BacklogFull")] == [
        (refusal["line"], refusal["type"]) for refusal in answer.document["refused"]
    ]


async def test_many_lines_are_put_while_they_arrive(world):
    """Some are stored before the client has sent the last one."""
    sent = asyncio.Event()

    async def chunks():
        yield b'{"body": "x"}\n' * 5_000
        await until(lambda: len(world.stored()) == 5_000)
        sent.set()
        yield b'{"body": "y"}\n'

    headers = WITH_TOKEN | {"Content-Type": "application/x-ndjson"}
    async with world.client.post(MESSAGES, headers=headers, data=chunks()) as response:
        assert 5_001 == (await response.json())["put"]
    assert sent.is_set()


async def test_long_line_is_refused_and_the_next_one_is_put(world):
    long = '{"body": "' + "x" * (2 * world.server.max_payload + 70_000) + '"}'
    answer = await world.put_lines(f'{long}\n{{"body": "short"}}')
    assert (200, 1) == (answer.status, answer.document["put"])
    assert [(1, "PayloadTooLarge")] == [(each["line"], each["type"]) for each in answer.document["refused"]]
    fits_no_message = '{"body": "' + "x" * (world.server.max_payload + 1) + '"}'
    answer = await world.put_lines(fits_no_message)
    assert "the server takes at most 1,048,576" in answer.document["refused"][0]["error"]


async def test_lines_that_stop_arriving_are_counted():
    """The answer says how many are stored."""
    async with ApiWorld().serve(idle_s=0.2) as world:

        async def chunks():
            yield b'{"body": "x"}\n{"body": "y"}\n{"bo'
            await answered.wait()

        answered = asyncio.Event()
        headers = WITH_TOKEN | {"Content-Type": "application/x-ndjson"}
        async with world.client.post(MESSAGES, headers=headers, data=chunks()) as response:
            status, document = response.status, await response.json()
        answered.set()
        assert (408, "EvenlaneError", 2) == (status, document["type"], document["put"])
        assert "for 0.2 s nothing more has arrived" in document["error"]


async def test_node_that_shuts_down_counts_what_is_stored(world):
    async def chunks():
        yield b'{"body": "x"}\n'
        await until(world.stored)
        closing.append(asyncio.create_task(world.node.puts.close()))
        for _ in range(1_000):
            yield b'{"body": "y"}\n'
            await asyncio.sleep(0)

    closing = []
    headers = WITH_TOKEN | {"Content-Type": "application/x-ndjson"}
    async with world.client.post(MESSAGES, headers=headers, data=chunks()) as response:
        status, document = response.status, await response.json()
    assert (503, "EvenlaneError") == (status, document["type"])
    assert "node n is shutting down" in document["error"]
    assert len(world.stored()) >= document["put"] > 0
    await closing[0]


async def test_node_that_shuts_down_does_not_wait_for_lines(world):
    """A client that sends nothing gets its answer at once, with the lines until then."""

    async def chunks():
        yield b'{"body": "x"}\n'
        await until(world.stored)
        await world.node.puts.close()
        await answered.wait()

    answered = asyncio.Event()
    headers = WITH_TOKEN | {"Content-Type": "application/x-ndjson"}
    async with world.client.post(MESSAGES, headers=headers, data=chunks()) as response:
        status, document = response.status, await response.json()
    answered.set()
    assert (503, 1) == (status, document["put"])
    assert "node n is shutting down" in document["error"]


async def test_client_that_leaves_abandons_its_request(world, caplog):
    """Its place is free again, and the log has no traceback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(world.head("application/x-ndjson", 1_000_000) + b'{"body": "x"}\n')
    await until(world.stored)
    writer.close()
    await writer.wait_closed()
    assert 201 == (await world.call("POST", MESSAGES, {"body": "y"})).status
    assert [] == [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]
    assert not await reader.read()
