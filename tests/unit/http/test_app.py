"""HTTP interface of a node: paths, status codes, and errors as one sentence."""

import asyncio
import json
import signal
import socket

import pytest

from evenlane.engine.errors import ConfigError, EvenlaneError, InvalidName, PortUnavailable, UnknownProject, Unreachable
from tests.support.http.serving import FakeNode, served, server_of
from tests.support.until import until


async def test_health_readiness_metrics_and_why():
    async with served() as (get, node):
        assert (200, {"node": "n", "env": "online"}) == _json(await get("/healthz"))
        node.stuck = "it has had no lease for 60 s"
        status, document = _json(await get("/healthz"))
        assert (503, node.stuck) == (status, document["error"])
        node.stuck = ""
        assert (200, {"ready": True, "node": "n", "partitions": 3, "generation": 7}) == _json(await get("/readyz"))
        status, headers, text = await get("/metrics", accept="application/openmetrics-text")
        assert (200, "# application/openmetrics-text\n") == (status, text)
        assert "text/plain; version=0.0.4; charset=utf-8" == headers["content-type"]
        assert (200, {"project": "acme"}) == _json(await get("/api/why/acme?priority=high&within=10m"))
        assert (200, {"project": "acme"}) == _json(await get("/api/why/acme"))
        assert (200, {"project": "acme"}) == _json(await get("/api/why/acme?positions=true"))
        asked = [("acme", "high", 600.0), ("acme", None, None), ("acme", None, None, "positions")]
        assert asked == node.asked


@pytest.mark.parametrize(("query", "expected"), [("", None), ("?subscription=audit", "audit"), ("?subscription=", "")])
async def test_request_may_name_a_subscription(query, expected):
    """K10: none means that of the node, and an empty one the subscription without a name."""
    async with served() as (get, node):
        for path in ("/api/why/acme", "/api/overview", "/api/dead/acme", "/api/dead/acme/errors"):
            assert 200 == (await get(f"{path}{query}"))[0]
        assert [expected] * 4 == node.subscriptions


async def test_unready_node_gives_the_reason():
    async with served() as (get, node):
        node.not_ready = "NATS did not answer within 2 s"
        status, document = _json(await get("/readyz"))
        assert (503, False, "NATS did not answer within 2 s") == (status, document["ready"], document["error"])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownProject("project 'acme' has no topic"), 404),
        (InvalidName("project 'a.b' is not valid"), 400),
        (ConfigError("within must be more than 0 seconds"), 400),
        (Unreachable("etcd at x does not answer"), 503),
        (EvenlaneError("no answer came"), 503),
        (EvenlaneError("two\nlines"), 503),
    ],
)
async def test_error_is_one_sentence_with_a_status_code(error, status):
    async with served() as (get, node):
        node.fails = error
        expected = {"error": " ".join(str(error).split()), "type": type(error).__name__}
        assert (status, expected) == _json(await get("/api/why/acme"))


async def test_defect_is_answered_without_a_traceback():
    async with served() as (get, node):
        node.fails = ZeroDivisionError("secret")
        status, document = _json(await get("/healthz"))
        assert 500 == status
        assert "secret" not in document["error"]
        node.fails = None
        assert 200 == (await get("/healthz"))[0]


@pytest.mark.parametrize(
    ("path", "method", "status", "sentence"),
    [
        ("/nothing", "GET", 404, "there is nothing at /nothing"),
        ("/api", "GET", 404, "there is nothing at /api"),
        ("/static/", "GET", 404, "there is nothing at /static/"),
        ("/static/../http/app.py", "GET", 404, "there is nothing at "),
        ("/static/%2e%2e/http/app.py", "GET", 404, "there is nothing at "),
        ("/static//etc/passwd", "GET", 404, "there is nothing at "),
        ("/api/why/", "GET", 404, "there is nothing at /api/why/"),
        ("/api/why/a/b", "GET", 404, "there is nothing at /api/why/a/b"),
        ("/healthz", "POST", 405, "/healthz does not support POST: use GET"),
        ("/api/topics/acme/pause", "GET", 405, "/api/topics/acme/pause does not support GET: use POST"),
        ("/api/overview?n=1", "GET", 400, "there is no parameter 'n': the parameters are subscription"),
        ("/api/dead/acme?limit=0", "GET", 400, "limit must be a whole number from 1 to 1000, not '0'"),
        ("/api/dead/acme?limit=1001", "GET", 400, "limit must be a whole number from 1 to 1000, not '1001'"),
        ("/api/dead/acme?limit=x", "GET", 400, "limit must be a whole number from 1 to 1000, not 'x'"),
        ("/api/dead/a%2Fb?limit=1", "GET", 400, "a name can't contain a /, however it is encoded"),
        ("/api/dead/acme/x", "GET", 400, "a dead letter's sequence must be a whole number from 1 on, not 'x'"),
        ("/api/dead/acme/0", "GET", 400, "a dead letter's sequence must be a whole number from 1 on, not '0'"),
        ("/api/why/acme?within=soon", "GET", 400, "'soon' is not a duration"),
        ("/api/why/acme?positions=1", "GET", 400, "positions must be true or false, not '1'"),
        ("/api/why/acme?within=", "GET", 400, "'' is not a duration"),
        (
            "/api/why/acme?prio=high",
            "GET",
            400,
            "there is no parameter 'prio': the parameters are positions, priority, subscription, within",
        ),
        ("/api/why/acme?priority=a&priority=b", "GET", 400, "priority is given twice"),
    ],
)
async def test_wrong_request_is_explained(path, method, status, sentence):
    async with served() as (get, node):
        answer = _json(await get(path, method))
        assert status == answer[0]
        assert sentence in answer[1]["error"]
        assert [] == node.asked


async def test_encoded_name_reaches_the_node_unchanged():
    """Fault 20: the node refuses it."""
    async with served() as (get, node):
        await get("/api/why/a%0d%0ab?priority=%2a")
        assert [("a\r\nb", "*", None)] == node.asked


# ---- the server


async def test_taken_port_raises_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortUnavailable, match=f"^port {port} on 127.0.0.1 is in use: choose another --http-port"):
            await server_of(FakeNode(), port=port).open()


@pytest.mark.parametrize(
    ("host", "sentence"),
    [("192.0.2.1", "this machine has no such address"), ("no.such.host.invalid", "can't be served: ")],
)
async def test_foreign_host_raises_one_sentence(host, sentence):
    with pytest.raises(PortUnavailable, match=sentence) as error:
        await server_of(FakeNode(), host).open()
    assert "\n" not in str(error.value)


async def test_server_installs_no_signal_handlers():
    """Fault 3: SIGTERM drains the node."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with served() as (get, _):
        await get("/healthz")
        assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


async def test_close_does_not_wait_for_a_held_connection():
    server = server_of(FakeNode())
    await server.close()  # it was never opened
    await server.open()
    port = int(server.address.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /heal")
    await writer.drain()
    await asyncio.wait_for(server.close(), 30)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    again = server_of(FakeNode(), port=port)
    await again.open()
    await again.close()


async def test_connection_without_a_request_is_closed_after_a_while():
    """Clients that only hold connections don't prevent health checks."""
    async with served(asks_within_s=2, connections=5) as (get, _):
        port = int(get.address.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in held[:4]:
            writer.write(b"GET /heal")
        assert 503 == (await get("/healthz"))[0]
        assert [b""] * 8 == await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in held)), 30)
        assert 200 == (await get("/healthz"))[0]
        for _, writer in held:
            writer.close()


async def test_connection_that_reads_no_answer_is_closed_after_a_while(caplog):
    """Clients that read nothing don't prevent health checks, nor fill the log."""
    node = FakeNode()
    node.whys = {"acme": {"project": "x" * 10_000_000}}  # more than the kernel's buffers
    async with served(node, takes_within_s=4, connections=5) as (get, _):
        port = int(get.address.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(4)]
        for _, writer in held:
            writer.write(b"GET /api/why/acme HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(lambda: len(node.asked) == 4)
        assert 503 == (await get("/healthz"))[0]
        async with asyncio.timeout(30):
            while (await get("/healthz"))[0] != 200:
                pass
        for _, writer in held:
            writer.close()
    assert [] == [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_slow_answer_may_take_longer_than_the_request():
    node = FakeNode()

    async def slow(*_, **_options):
        await asyncio.sleep(1.5)  # longer than the limit for a request
        return {"project": "acme"}

    node.why = slow
    async with served(node, asks_within_s=1) as (get, _):
        for _ in range(2):
            assert 200 == (await get("/api/why/acme"))[0]


async def test_ipv6_address():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        async with served(host="::1") as (get, _):
            assert 200 == (await get("/healthz"))[0]
    except PortUnavailable:
        pytest.skip("no IPv6 here")


def _json(answer):
    status, headers, text = answer
    assert "application/json" == headers["content-type"]
    return status, json.loads(text)
