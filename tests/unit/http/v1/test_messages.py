"""One message by HTTP: options, receipts, and errors as in Python."""

import asyncio
import base64

import pytest

from evenlane.engine.core.ports import Refused
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import EvenlaneError
from tests.support.http.api_world import MESSAGES, ApiWorld
from tests.support.until import until


async def test_message_is_stored_with_its_options(world):
    body = {
        "body": "hello", "priority": "high", "key": "k", "delay": "10m", "ttl": 5, "id": "7", "headers": {"X": "a"},
        "project": "acme",
    }  # fmt: skip
    status, _, document = await world.call("POST", MESSAGES, body)
    [message] = world.stored()
    assert (201, {"stream": document["stream"], "sequence": 1, "duplicate": False, "id": "7"}) == (status, document)
    assert (b"hello", "high", {"X": "a"}) == (
        message.body, message.subject.split(".")[5], h.decode_user(message.headers),
    )  # fmt: skip
    again = await world.call("POST", MESSAGES, body)
    assert (201, True, 1) == (again.status, again.document["duplicate"], len(world.stored()))


@pytest.mark.parametrize("body", [b"", b"\x00\xff" * 100, "grüße".encode()])
async def test_any_bytes_are_put_in_base64_or_raw(world, body):
    """K1."""
    in_json = {"body_base64": base64.b64encode(body).decode()}
    assert 201 == (await world.call("POST", MESSAGES, in_json)).status
    answer = await world.call(
        "POST", f"{MESSAGES}?priority=low&group=0&delay=0&id=null", body, content_type="Application/Octet-Stream; x=y"
    )
    assert (201, "null") == (answer.status, answer.document["id"])
    assert [body, body] == [message.body for message in world.stored()]
    assert "low" in {message.subject.split(".")[5] for message in world.stored()}


async def test_message_of_the_largest_size_is_stored_however_it_is_sent(world):
    """Text whose JSON is twice as long, base64, and raw bytes."""
    size = world.server.max_payload - 20_000
    assert 201 == (await world.call("POST", MESSAGES, {"body": '"' * size})).status
    encoded = base64.b64encode(b"\xff" * size).decode()
    assert 201 == (await world.call("POST", MESSAGES, {"body_base64": encoded})).status
    assert 201 == (await world.call("POST", MESSAGES, b"x" * size, content_type="application/octet-stream")).status


@pytest.mark.parametrize(
    ("body", "status", "kind", "sentence"),
    [
        (b"{broken", 400, "ConfigError", "the body isn't a valid message: it isn't JSON"),
        (b"", 400, "ConfigError", "the body isn't a valid message: it isn't JSON: it ends too early"),
        (b"[1]", 400, "ConfigError", "the body isn't a valid message: it must be a JSON object, not `array`"),
        (b"\xef\xbb\xbf{}", 400, "ConfigError", "the body isn't a valid message: it begins with a byte order mark"),
        ({}, 400, "ConfigError", "it needs either `body`, a string, or `body_base64`"),
        ({"body": "x", "prio": "high"}, 400, "ConfigError", "it has the unknown field `prio`"),
        ({"body": {"order": 1}}, 400, "ConfigError", "expected `str`, got `object` in `body`"),
        ({"body_base64": "?"}, 400, "ConfigError", "`body_base64` is not base64"),
        ({"body": "x", "project": "bolt"}, 400, "ConfigError", "its project is 'bolt', and the path names 'acme'"),
        ({"body": "x", "delay": "soon"}, 400, "ConfigError", "`delay` 'soon' is not a duration"),
        ({"body": "x", "group": 99}, 400, "InvalidPut", "group 99 of project 'acme' is not one of its groups"),
        ({"body": "x", "priority": "urgent"}, 400, "InvalidName", "priority 'urgent' is not one of"),
        ({"body": "x", "headers": {"Nats-Rollup": "all"}}, 400, "InvalidName", "Nats-Rollup"),
    ],
)
async def test_invalid_message_is_one_sentence(world, body, status, kind, sentence):
    if isinstance(body, bytes):
        answer = await world.call("POST", MESSAGES, body, content_type="application/json")
    else:
        answer = await world.call("POST", MESSAGES, body)
    assert (status, kind) == (answer.status, answer.document["type"]), answer.document
    assert sentence in answer.document["error"]
    assert "\n" not in answer.document["error"]
    assert [] == world.stored()


@pytest.mark.parametrize(
    ("path", "status", "kind", "sentence"),
    [
        ("/api/v1/projects/nobody/messages", 404, "UnknownProject", "project 'nobody' has no topic"),
        ("/api/v1/projects/no.body/messages", 400, "InvalidName", "project 'no.body' is not valid"),
        ("/api/v1/projects/a%2Fb/messages", 404, "NotFound", "there is nothing at /api/v1/projects/a/b/messages"),
        (f"{MESSAGES}?priority=high", 400, "ConfigError", "a body of application/json has them as fields"),
        ("/api/v1/projects/drained/messages", 409, "TopicDraining", "project 'drained' is draining"),
    ],
)
async def test_wrong_path_is_one_sentence(world, path, status, kind, sentence):
    world.topics.set("drained", '{"qps": 4, "state": "draining"}')
    answer = await world.call("POST", path, {"body": "x"})
    assert (status, kind) == (answer.status, answer.document["type"])
    assert sentence in answer.document["error"]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content_type": "application/x-www-form-urlencoded"}, b"{}"),
        ({"content_type": "text/plain"}, b"{}"),
        ({"content_type": "application/json", "content_encoding": "gzip"}, b"{}"),
    ],
)
async def test_other_content_types_are_refused(world, headers, body):
    answer = await world.call("POST", MESSAGES, body, **headers)
    assert (415, "UnsupportedMediaType") == (answer.status, answer.document["type"])
    assert (
        "the body must be application/json, application/x-ndjson, application/jsonl or application/octet-stream"
        in (answer.document["error"])
    )


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("prio=high", "there is no parameter 'prio'"),
        ("group=x", "a parameter is wrong: expected `int`, got `str` in `group`"),
        ("delay=-5s", "`delay` '-5s' is not a duration"),
    ],
)
async def test_wrong_option_of_raw_bytes_is_one_sentence(world, query, sentence):
    answer = await world.call("POST", f"{MESSAGES}?{query}", b"x", content_type="application/octet-stream")
    assert (400, "ConfigError") == (answer.status, answer.document["type"])
    assert sentence in answer.document["error"]


@pytest.mark.parametrize("authorization", ["", "Bearer another token", "Basic eDp5"])
async def test_without_the_token_nothing_is_put(world, authorization):
    answer = await world.call("POST", MESSAGES, {"body": "x"}, authorization=authorization)
    assert (401, "Unauthorized") == (answer.status, answer.document["type"])
    assert [] == world.stored()


async def test_node_without_a_token_takes_no_messages():
    async with ApiWorld().serve(token=None) as world:
        answer = await world.call("POST", MESSAGES, {"body": "x"})
        assert (403, "Forbidden") == (answer.status, answer.document["type"])


async def test_refusals_of_the_store_have_the_classes_of_python(world):
    world.server.refuse("lanes.", Refused("no"))
    answer = await world.call("POST", MESSAGES, {"body": "x"})
    assert (422, "PutRefused") == (answer.status, answer.document["type"])
    world.server.accept("lanes.")
    world.topics.set("acme", '{"qps": 400, "max_backlog": 1, "spread": 1}')
    assert 201 == (await world.call("POST", MESSAGES, {"body": "x"})).status

    async def is_full():
        answer = await world.call("POST", MESSAGES, {"body": "x"})
        return answer if answer.status != 201 else None

    answer = await until(is_full)
    assert (429, "BacklogFull") == (answer.status, answer.document["type"])
    assert "1" == answer.headers["retry-after"]


async def test_store_without_acknowledgement_is_503():
    async with ApiWorld().serve(producer={"timeout": 0.05}) as world:
        await world.call("POST", MESSAGES, {"body": "x"})
        world.server.disconnect()
        answer = await world.call("POST", MESSAGES, {"body": "x"})
        assert (503, "NotAcknowledged") == (answer.status, answer.document["type"])
        assert "is not stored" in answer.document["error"]


async def test_node_that_shuts_down_takes_no_messages(world):
    assert 201 == (await world.call("POST", MESSAGES, {"body": "x"})).status
    await world.node.puts.close()
    answer = await world.call("POST", MESSAGES, {"body": "x"})
    assert (503, "EvenlaneError") == (answer.status, answer.document["type"])
    assert "node n is shutting down and takes no more messages" in answer.document["error"]


async def test_concurrent_requests_are_bounded():
    """A request that waits for its acknowledgement counts."""
    async with ApiWorld().serve(at_once=2) as world:
        world.server.delay_acks()
        putting = [asyncio.create_task(world.call("POST", MESSAGES, {"body": "x"})) for _ in range(2)]
        await until(lambda: len(world.stored()) == 2)
        answer = await world.call("POST", MESSAGES, {"body": "x"})
        assert (503, "2 requests are already putting messages: try again in a second") == (
            answer.status, answer.document["error"],
        )  # fmt: skip
        world.server.delay_acks(0)
        for each in putting:
            each.cancel()
        await asyncio.gather(*putting, return_exceptions=True)


@pytest.mark.parametrize(
    ("project", "options"),
    [
        ("nobody", {}),
        ("acme", {"group": 99}),
        ("acme", {"priority": "urgent"}),
        ("acme", {"key": ""}),
        ("acme", {"id": "a\nb"}),
        ("acme", {"headers": {"a b": "c"}}),
        ("acme", {"ttl": 0}),
    ],
)
async def test_error_is_that_of_the_producer_in_python(world, project, options):
    """Its class and its sentence."""
    answer = await world.call("POST", f"/api/v1/projects/{project}/messages", {"body": "x"} | options)
    async with world.producer() as producer:
        with pytest.raises(EvenlaneError) as error:
            await producer.put(project, b"x", **options)
    assert (type(error.value).__name__, str(error.value)) == (answer.document["type"], answer.document["error"])
