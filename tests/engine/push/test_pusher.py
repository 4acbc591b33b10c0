"""E17 on real sockets: what an endpoint gets, and what becomes of a message by its answer."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager, closing
from email.utils import formatdate
from time import time

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook
from structlog.testing import capture_logs

from engine.clock import now_ns
from engine.message import Pause
from engine.push import handle
from engine.push.answer import PushFailed
from engine.push.breaker import State
from engine.push.pusher import Pusher
from engine.settings import Settings
from tests.engine.push.receiver import message, receiving
from tests.wait import until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def failed(pusher, of):
    with pytest.raises(PushFailed) as caught:
        await pusher(of)
    assert str(caught.value).isprintable()
    return caught.value


async def paused(pusher, of):
    with pytest.raises(Pause) as caught:
        await pusher(of)
    return caught.value


def breaker_of(pusher, project="acme"):
    return pusher._endpoints._of[project].breaker


@asynccontextmanager
async def raw_server(serve):
    """Says what no HTTP library would."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class TestRequest:
    async def test_the_body_is_posted_as_it_is(self, receiver, pusher):
        await pusher(message(f"{receiver.url}/hook?a=%2F&sig=x%20y", body=b"\x00\xff raw", attempt=3))
        [seen] = receiver.seen
        assert ("POST", "/hook?a=%2F&sig=x%20y", b"\x00\xff raw") == (seen.method, seen.path, seen.body)
        assert ("application/octet-stream", "3") == (seen.headers["content-type"], seen.headers["evenlane-attempt"])
        assert receiver.url.removeprefix("http://") == seen.headers["host"]
        assert "acme:order-17" == seen.headers["webhook-id"]
        assert abs(int(seen.headers["webhook-timestamp"]) - time()) < 60
        assert "webhook-signature" not in seen.headers

    @pytest.mark.parametrize("body", [b"", b"x" * 3_000_000])
    async def test_of_any_length(self, receiver, pusher, body):
        await pusher(message(receiver.url, body=body))
        assert (body, str(len(body))) == (receiver.seen[0].body, receiver.seen[0].headers["content-length"])

    async def test_each_secret_signs_as_standard_webhooks_has_it(self, receiver, pusher, tmp_path):
        """Independent oracle: standardwebhooks. During a rotation both the old and the new secret must do."""
        (tmp_path / "acme.key").write_text(f"{SECRET}\nplain-secret\n")
        for attempt in (1, 2):
            await pusher(message(receiver.url, push={"secret_ref": "acme.key"}, attempt=attempt))
        first, second = receiver.seen
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        for seen in receiver.seen:
            for secret in (SECRET, b"plain-secret"):
                assert {"a": 1} == Webhook(secret).verify(seen.body, seen.headers)
        with pytest.raises(Exception, match="No matching"):
            Webhook(b"another").verify(first.body, first.headers)

    async def test_a_secret_that_is_not_there_costs_no_attempt(self, receiver, pusher, tmp_path):
        pushed = message(receiver.url, push={"secret_ref": "gone"})
        with capture_logs() as logs:
            for _ in range(3):
                assert "secret gone can't be read" in str(await paused(pusher, pushed))
        assert [] == receiver.seen
        assert 1 == len(logs)
        (tmp_path / "gone").write_text(SECRET)
        await pusher(pushed)
        assert 1 == len(receiver.seen)

    async def test_headers_of_topic_and_message_go_along_and_can_not_be_smuggled(self, receiver, pusher):
        theirs = {
            "Content-Type": "application/json",
            "X-A": "ä",
            "Host": "evil",
            "X-B": "b\r\nX-C: d",
            "traceparent": "t",
        }
        await pusher(message(receiver.url, push={"headers": {"Authorization": "Bearer x"}}, headers=theirs))
        got = receiver.seen[0].headers
        assert ("application/json", "ä", "t", "Bearer x") == tuple(
            got[name] for name in ("content-type", "x-a", "traceparent", "authorization")
        )
        assert got["host"] != "evil"
        assert not {"x-b", "x-c", "cookie"} & set(got)

    async def test_a_connection_is_used_again(self, receiver, pusher):
        receiver.body = b"x" * 10_000
        for _ in range(5):
            await pusher(message(receiver.url))
        assert 1 == len({seen.peer for seen in receiver.seen})

    async def test_cookies_are_not_kept(self, receiver, pusher):
        receiver.headers = {"Set-Cookie": "a=b"}
        for _ in range(2):
            await pusher(message(receiver.url))
        assert "cookie" not in receiver.seen[1].headers

    async def test_many_endpoints_leave_few_connections_open(self, pusher, monkeypatch):
        monkeypatch.setattr("engine.push.client._KEPT", 4)
        async with receiving(host="0.0.0.0") as receiver:
            port = receiver.url.rpartition(":")[2]
            for n in range(20):
                await pusher(message(f"http://127.0.0.{n + 1}:{port}", project=f"p{n}"))
            assert 20 == len(receiver.seen)
            await until(lambda: pusher._client._sockets.count <= 4)
            await pusher(message(f"http://127.0.0.1:{port}"))
            assert receiver.seen[0].peer == receiver.seen[-1].peer


class TestSuccess:
    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    async def test_2xx_settles(self, receiver, pusher, status):
        receiver.status, receiver.body = status, b""
        await pusher(message(receiver.url))
        assert State.CLOSED is breaker_of(pusher).state

    async def test_a_huge_answer_is_not_read_to_its_end(self, receiver, pusher):
        """Fault: an endpoint without measure. 2xx says it has the message; the connection is closed."""
        written = 0

        async def endless(request):
            nonlocal written
            response = web.StreamResponse(headers=receiver.headers)
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65_536)
                written += 65_536

        receiver.behaviour = endless
        await pusher(message(receiver.url))
        receiver.behaviour = None
        await pusher(message(receiver.url))
        assert written < 50_000_000
        assert receiver.seen[0].peer != receiver.seen[1].peer

    async def test_a_packed_answer_is_not_unpacked(self, receiver, pusher):
        receiver.headers, receiver.body, receiver.status = {"Content-Encoding": "gzip"}, b"not gzip at all", 500
        assert "not gzip at all" in str(await failed(pusher, message(receiver.url)))

    async def test_a_body_that_drips_keeps_the_slot_for_a_second_only(self, receiver, pusher, monkeypatch):
        monkeypatch.setattr("engine.push.client._REST_S", 0.05)
        gone = asyncio.Event()

        async def dripping(request):
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while True:
                    await response.write(b".")
                    await asyncio.sleep(0.01)
            finally:
                gone.set()

        receiver.behaviour = dripping
        await pusher(message(receiver.url, push={"timeout": 3_600}))
        await asyncio.wait_for(gone.wait(), 10)


class TestFailure:
    async def test_a_status_reads_well_and_shows_no_secret(self, receiver, pusher, tmp_path):
        (tmp_path / "k").write_text(SECRET)
        receiver.status, receiver.body = 500, f"no\nway: Bearer t0ken!, {SECRET}, k3y".encode()
        push = {"headers": {"Authorization": "Bearer t0ken!"}, "secret_ref": "k"}
        error = await failed(pusher, message(f"{receiver.url}/x?key=k3y!", push=push))
        assert f"HTTP 500 from {receiver.url}/x: no way: ***, ***, k3y" == str(error)

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    async def test_a_redirect_is_not_followed(self, receiver, pusher, status):
        receiver.status, receiver.headers = status, {"Location": f"{receiver.url}/elsewhere"}
        error = await failed(pusher, message(f"{receiver.url}/here"))
        assert f"HTTP {status} from {receiver.url}/here: redirects are not followed" == str(error)
        assert ["/here"] == [seen.path for seen in receiver.seen]

    @pytest.mark.parametrize("status", [400, 401, 404, 410, 429, 503])
    async def test_other_statuses_without_retry_after_are_failed_attempts(self, receiver, pusher, status):
        receiver.status = status
        assert f"HTTP {status} from" in str(await failed(pusher, message(receiver.url)))

    async def test_slow(self, receiver, pusher):
        """Fault: an endpoint that doesn't answer. The request ends by the topic's timeout."""
        release = asyncio.Event()

        async def slow(_request):
            await release.wait()
            return web.Response()

        receiver.behaviour = slow
        error = await failed(pusher, message(receiver.url, push={"timeout": 0.05}))
        assert f"no answer from {receiver.url} within 0.05 s" == str(error)
        release.set()

    async def test_dead(self, pusher):
        """Fault: nobody listens."""
        with closing(socket.socket()) as bound:
            bound.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        error = await failed(pusher, message(f"{url}/x"))
        assert "no connection (" in str(error)
        assert str(error).endswith(f": {url}/x")

    async def test_no_such_name(self, pusher):
        error = await failed(pusher, message("http://nobody.invalid/x"))
        assert "nobody.invalid was not found (" in str(error)

    @pytest.mark.parametrize(
        ("said", "words"),
        [
            (b"", "the connection was closed without an answer"),
            (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer is no HTTP"),
            (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000 + b"\r\n\r\n", "the answer is no HTTP"),
            (b"HTTP/1.1 OK\r\n\r\n", "the answer is no HTTP"),
        ],
    )
    async def test_nonsense(self, pusher, said, words):
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            writer.close()

        async with raw_server(serve) as url:
            assert words in str(await failed(pusher, message(url)))

    async def test_a_kept_connection_that_the_other_side_closed_costs_no_attempt(self, pusher):
        """Servers close idle connections, and one may be used in that very moment."""
        requests = 0

        async def serve(reader, writer):
            nonlocal requests
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(8)
            requests += 1
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await reader.read(1)
            writer.close()  # in the middle of the second request

        async with raw_server(serve) as url:
            await pusher(message(url))
            await pusher(message(url))
        assert 2 == requests

    async def test_a_reset_on_a_new_connection_is_not_tried_again(self, pusher):
        connections = 0

        async def serve(reader, writer):
            nonlocal connections
            connections += 1
            writer.transport.abort()

        async with raw_server(serve) as url:
            await failed(pusher, message(url))
        assert 1 == connections

    async def test_ack_wait_never_cuts_it(self, receiver, pusher):
        """Its sign of life lasts as long as its own timeout."""
        pushed = message(receiver.url, push={"timeout": 60})
        await pusher(pushed)
        assert pushed.alive_at > now_ns() + 59_000_000_000


class TestPause:
    @pytest.mark.parametrize("status", [429, 503])
    async def test_retry_after_in_seconds(self, receiver, pusher, status):
        receiver.status, receiver.headers = status, {"Retry-After": "30"}
        error = await paused(pusher, message(receiver.url))
        assert (30.0, True) == (error.after, f"HTTP {status}" in str(error))

    async def test_retry_after_as_a_date(self, receiver, pusher):
        receiver.status, receiver.headers = 503, {"Retry-After": formatdate(time() + 100, usegmt=True)}
        assert 90 < (await paused(pusher, message(receiver.url))).after <= 100

    async def test_it_is_capped_and_never_nothing(self, receiver, pusher):
        receiver.status, receiver.headers = 429, {"Retry-After": "99999999"}
        assert 3_600.0 == (await paused(pusher, message(receiver.url))).after
        receiver.headers = {"Retry-After": "0"}
        assert 1.0 == (await paused(pusher, message(receiver.url))).after

    async def test_a_malformed_one_is_as_none_and_said_once(self, receiver, pusher):
        """Bad input: malformed Retry-After."""
        receiver.status, receiver.headers = 429, {"Retry-After": "in a while"}
        with capture_logs() as logs:
            for _ in range(3):
                assert "HTTP 429" in str(await failed(pusher, message(receiver.url)))
        assert ["a Retry-After is neither seconds nor a date: passed over"] == [line["event"] for line in logs]

    async def test_of_other_statuses_it_says_nothing(self, receiver, pusher):
        receiver.status, receiver.headers = 500, {"Retry-After": "30"}
        await failed(pusher, message(receiver.url))

    async def test_a_topic_without_push_is_left_alone_for_a_while(self, pusher):
        pushed = message("http://a")
        pushed.queue.topic.push = None
        for handler in (pusher, handle):
            error = await paused(handler, pushed)
            assert (10.0, "topic acme has no push, and this node has no other handler") == (error.after, str(error))


class TestBreaker:
    async def test_dead_then_back(self, receiver, pusher, monkeypatch):
        """Flapping: five failures open it, no request is made meanwhile, and one success closes it."""
        clock = [0]
        monkeypatch.setattr("engine.push.pusher.now_ns", lambda: clock[0])
        pushed = message(receiver.url)
        receiver.status = 500
        with capture_logs() as logs:
            for _ in range(5):
                await failed(pusher, pushed)
            error = await paused(pusher, pushed)
            assert (1.0, 5) == (error.after, len(receiver.seen))
            assert f"{receiver.url} has failed again and again" in str(error)
            clock[0] += 1_000_000_000
            await failed(pusher, pushed)
            assert 2.0 == (await paused(pusher, pushed)).after
            receiver.status = 200
            clock[0] += 2_000_000_000
            await pusher(pushed)
            await pusher(pushed)
        assert 8 == len(receiver.seen)
        assert ["endpoint is left alone", "endpoint is left alone", "endpoint answers again"] == [
            line["event"] for line in logs
        ]

    async def test_what_the_endpoint_has_refused_opens_nothing(self, receiver, pusher):
        receiver.status = 404
        for _ in range(10):
            await failed(pusher, message(receiver.url))
        assert State.CLOSED is breaker_of(pusher).state

    async def test_one_probe_at_a_time(self, receiver, pusher, monkeypatch):
        clock = [0]
        monkeypatch.setattr("engine.push.pusher.now_ns", lambda: clock[0])
        receiver.status = 500
        for _ in range(5):
            await failed(pusher, message(receiver.url))
        release = asyncio.Event()

        async def waits(_request):
            await release.wait()
            return web.Response()

        receiver.behaviour, clock[0] = waits, 1_000_000_000
        probe = asyncio.create_task(pusher(message(receiver.url)))
        await until(lambda: len(receiver.seen) == 6)
        assert 1.0 == (await paused(pusher, message(receiver.url))).after
        release.set()
        await probe
        await pusher(message(receiver.url))
        assert 7 == len(receiver.seen)

    async def test_a_probe_that_is_cancelled_leaves_it_to_the_next(self, receiver, pusher, monkeypatch):
        clock = [0]
        monkeypatch.setattr("engine.push.pusher.now_ns", lambda: clock[0])
        receiver.status = 500
        for _ in range(5):
            await failed(pusher, message(receiver.url))
        release = asyncio.Event()

        async def waits(_request):
            await release.wait()
            return web.Response()

        receiver.behaviour, clock[0] = waits, 1_000_000_000
        probe = asyncio.create_task(pusher(message(receiver.url)))
        await until(lambda: len(receiver.seen) == 6)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        release.set()
        await pusher(message(receiver.url))
        assert State.CLOSED is breaker_of(pusher).state

    async def test_each_topic_has_its_own(self, receiver, pusher):
        """One customer's failures never close another's way, even to the same address."""
        receiver.status = 500
        for _ in range(5):
            await failed(pusher, message(receiver.url, project="bad"))
        receiver.status = 200
        await pusher(message(receiver.url, project="good"))
        await paused(pusher, message(receiver.url, project="bad"))

    async def test_new_settings_are_tried_at_once(self, receiver, pusher):
        receiver.status = 500
        for _ in range(5):
            await failed(pusher, message(receiver.url))
        receiver.status = 200
        await pusher(message(receiver.url, push={"headers": {"Authorization": "mended"}}))


class TestPrivateAddresses:
    @pytest.fixture
    async def public(self):
        made = Pusher(Settings())
        yield made
        await made.close()

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
    async def test_this_machine_is_closed_by_default_however_it_is_written(self, receiver, public, host):
        port = receiver.url.rpartition(":")[2]
        error = await failed(public, message(f"http://{host}:{port}/"))
        assert "is not a public address, and this node pushes to no other (push_private)" in str(error)
        assert [] == receiver.seen

    @pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.1", "[fd00:ec2::254]", "192.168.0.1"])
    async def test_so_are_private_networks_and_metadata(self, public, host):
        """Nothing is sent there, so that nothing is waited for."""
        error = await failed(public, message(f"http://{host}/latest/meta-data/", push={"timeout": 3_600}))
        assert "is not a public address" in str(error)

    async def test_a_name_that_changes_its_meaning_does_not_help(self, receiver, public, monkeypatch):
        """DNS rebinding: whatever a look-up said before, the address connected to is what counts."""
        port = int(receiver.url.rpartition(":")[2])

        def look_up(_host, _port, **_more):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr("engine.push.resolver.socket.getaddrinfo", look_up)
        error = await failed(public, message(f"http://rebinding.example:{port}/"))
        assert "127.0.0.1 is not a public address" in str(error)
        assert [] == receiver.seen

    async def test_a_proxy_of_the_surroundings_is_not_used(self, receiver, pusher, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        await pusher(message(receiver.url))


class TestTls:
    @pytest.fixture
    def authority(self):
        import trustme

        return trustme.CA()

    @pytest.fixture
    async def secured(self, authority):
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        async with receiving(context) as made:
            yield made

    async def test_a_certificate_nobody_vouches_for_is_refused(self, secured, pusher):
        error = await failed(pusher, message(f"{secured.url}/x"))
        assert "the certificate is not trusted (unable to get local issuer certificate)" in str(error)
        assert str(error).endswith(f": {secured.url}/x")
        assert [] == secured.seen

    async def test_with_its_authority_it_is_taken_and_for_its_own_name_only(self, secured, authority, tmp_path):
        ca = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(ca))
        pusher = Pusher(Settings(push_private=True, push_ca=ca))
        try:
            await pusher(message(secured.url))
            assert 1 == len(secured.seen)
            error = await failed(pusher, message(secured.url.replace("127.0.0.1", "localhost")))
            assert "the certificate is not trusted (Hostname mismatch" in str(error)
        finally:
            await pusher.close()

    async def test_plain_http_where_tls_is_wanted(self, receiver, pusher):
        error = await failed(pusher, message(receiver.url.replace("http:", "https:")))
        assert "no TLS connection (" in str(error)

    def test_an_authority_that_is_none_is_one_sentence_at_the_start(self, tmp_path):
        from engine.errors import ConfigError

        (tmp_path / "ca.pem").write_text("x")
        with pytest.raises(ConfigError, match=r"push_ca: .*ca\.pem holds no certificates in PEM"):
            Pusher(Settings(push_ca=tmp_path / "ca.pem"))


async def test_it_can_be_closed_twice_and_opened_again(receiver, tmp_path):
    pusher = Pusher(Settings(push_private=True))
    await pusher.close()
    await pusher.open()
    await pusher(message(receiver.url))
    await pusher.close()
    await pusher.close()
    await pusher(message(receiver.url))
    await pusher.close()
    assert 2 == len(receiver.seen)


def test_the_body_of_a_fake_message_is_json():
    assert {"a": 1} == json.loads(message("http://a").body)
