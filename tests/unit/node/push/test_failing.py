"""E17 on real sockets: endpoints that are slow, dead or malformed, or ask for a pause."""

import asyncio
import socket
from contextlib import closing
from email.utils import formatdate
from time import time

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.push.breaker import BreakerState
from evenlane.engine.push import handle
from tests.support.push.pushing import breaker_of, failed, paused, raw_server
from tests.support.push.receiver import message
from tests.support.until import until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def clock(monkeypatch):
    """The pusher's time (ns) in a list, set by the test."""
    now = [0]
    monkeypatch.setattr("evenlane.engine.node.push.pusher.now_ns", lambda: now[0])
    return now


class TestFailure:
    async def test_error_of_a_status_shows_no_secret(self, receiver, pusher, tmp_path):
        (tmp_path / "k").write_text(SECRET)
        receiver.status, receiver.body = 500, f"no\nway: Bearer t0ken!, {SECRET}, k3y".encode()
        push = {"headers": {"Authorization": "Bearer t0ken!"}, "secret_ref": "k"}
        error = await failed(pusher, message(f"{receiver.url}/x?key=k3y!", push=push))
        assert f"HTTP 500 from {receiver.url}/x: no way: ***, ***, k3y" == str(error)

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    async def test_redirect_is_not_followed(self, receiver, pusher, status):
        receiver.status, receiver.headers = status, {"Location": f"{receiver.url}/elsewhere"}
        error = await failed(pusher, message(f"{receiver.url}/here"))
        assert f"HTTP {status} from {receiver.url}/here: redirects are not followed" == str(error)
        assert ["/here"] == [seen.path for seen in receiver.seen]

    @pytest.mark.parametrize("status", [400, 401, 404, 410, 429, 503])
    async def test_status_without_retry_after_fails_the_attempt(self, receiver, pusher, status):
        receiver.status = status
        assert f"HTTP {status} from" in str(await failed(pusher, message(receiver.url)))

    async def test_slow_endpoint_times_out(self, receiver, pusher):
        release = asyncio.Event()

        async def slow(_request):
            await release.wait()
            return web.Response()

        receiver.behaviour = slow
        error = await failed(pusher, message(receiver.url, push={"timeout": 0.05}))
        assert f"no answer from {receiver.url} within 0.05 s" == str(error)
        release.set()

    async def test_refused_connection_fails_the_attempt(self, pusher):
        with closing(socket.socket()) as bound:
            bound.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        error = await failed(pusher, message(f"{url}/x"))
        assert "no connection (" in str(error)
        assert str(error).endswith(f": {url}/x")

    async def test_unknown_host_fails_the_attempt(self, pusher):
        error = await failed(pusher, message("http://nobody.invalid/x"))
        assert "nobody.invalid was not found (" in str(error)

    @pytest.mark.parametrize(
        ("answered", "words"),
        [
            (b"", "the connection was closed without an answer"),
            (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer isn't HTTP"),
            (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000 + b"\r\n\r\n", "the answer isn't HTTP"),
            (b"HTTP/1.1 OK\r\n\r\n", "the answer isn't HTTP"),
        ],
    )
    async def test_malformed_answer_fails_the_attempt(self, pusher, answered, words):
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answered)
            writer.close()

        async with raw_server(serve) as url:
            assert words in str(await failed(pusher, message(url)))

    async def test_closed_idle_connection_costs_no_attempt(self, pusher):
        """A server may close an idle connection at the moment of its next use."""
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

    async def test_reset_of_a_new_connection_is_not_retried(self, pusher):
        connections = 0

        async def serve(reader, writer):
            nonlocal connections
            connections += 1
            writer.transport.abort()

        async with raw_server(serve) as url:
            await failed(pusher, message(url))
        assert 1 == connections

    async def test_push_gives_a_sign_of_life_for_its_timeout(self, receiver, pusher):
        """So `ack_wait` doesn't end it."""
        pushed = message(receiver.url, push={"timeout": 60})
        before = now_ns()
        await pusher(pushed)
        assert pushed.alive_at >= before + 60_000_000_000


class TestPause:
    @pytest.mark.parametrize("status", [429, 503])
    async def test_retry_after_in_seconds_pauses(self, receiver, pusher, status):
        receiver.status, receiver.headers = status, {"Retry-After": "30"}
        error = await paused(pusher, message(receiver.url))
        assert (30.0, True) == (error.after, f"HTTP {status}" in str(error))

    async def test_retry_after_as_a_date_pauses(self, receiver, pusher):
        receiver.status, receiver.headers = 503, {"Retry-After": formatdate(time() + 100, usegmt=True)}
        assert 90 < (await paused(pusher, message(receiver.url))).after <= 100

    async def test_retry_after_is_bounded(self, receiver, pusher):
        receiver.status, receiver.headers = 429, {"Retry-After": "99999999"}
        assert 3_600.0 == (await paused(pusher, message(receiver.url))).after
        receiver.headers = {"Retry-After": "0"}
        assert 1.0 == (await paused(pusher, message(receiver.url))).after

    async def test_malformed_retry_after_is_ignored_and_logged_once(self, receiver, pusher):
        receiver.status, receiver.headers = 429, {"Retry-After": "in a while"}
        with capture_logs() as logs:
            for _ in range(3):
                assert "HTTP 429" in str(await failed(pusher, message(receiver.url)))
        assert ["a Retry-After is neither seconds nor a date: passed over"] == [line["event"] for line in logs]

    async def test_retry_after_of_other_statuses_is_ignored(self, receiver, pusher):
        receiver.status, receiver.headers = 500, {"Retry-After": "30"}
        await failed(pusher, message(receiver.url))

    async def test_topic_without_push_is_paused(self, pusher):
        pushed = message("http://a")
        pushed.queue.rules.topic.push = None
        for handler in (pusher, handle):
            error = await paused(handler, pushed)
            assert (10.0, "topic acme has no push, and this node has no other handler") == (error.after, str(error))


class TestBreaker:
    async def test_endpoint_is_paused_after_five_failures_until_a_success(self, receiver, pusher, clock):
        pushed = message(receiver.url)
        receiver.status = 500
        with capture_logs() as logs:
            for _ in range(5):
                await failed(pusher, pushed)
            error = await paused(pusher, pushed)
            assert (1.0, 5) == (error.after, len(receiver.seen))
            assert f"{receiver.url} has failed repeatedly" in str(error)
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

    async def test_refused_messages_open_no_breaker(self, receiver, pusher):
        receiver.status = 404
        for _ in range(10):
            await failed(pusher, message(receiver.url))
        assert BreakerState.CLOSED is breaker_of(pusher).state

    async def test_one_probe_runs_at_a_time(self, receiver, pusher, clock):
        probe, release = await self.begin_probe(receiver, pusher, clock)
        assert 1.0 == (await paused(pusher, message(receiver.url))).after
        release.set()
        await probe
        await pusher(message(receiver.url))
        assert 7 == len(receiver.seen)

    async def test_cancelled_probe_lets_the_next_one_begin(self, receiver, pusher, clock):
        probe, release = await self.begin_probe(receiver, pusher, clock)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        release.set()
        await pusher(message(receiver.url))
        assert BreakerState.CLOSED is breaker_of(pusher).state

    @staticmethod
    async def begin_probe(receiver, pusher, clock):
        """Open the breaker, and begin a probe that waits for the event."""
        receiver.status = 500
        for _ in range(5):
            await failed(pusher, message(receiver.url))
        release = asyncio.Event()

        async def wait(_request):
            await release.wait()
            return web.Response()

        receiver.behaviour, clock[0] = wait, 1_000_000_000
        probe = asyncio.create_task(pusher(message(receiver.url)))
        await until(lambda: len(receiver.seen) == 6)
        return probe, release

    async def test_secret_missing_after_the_pause_blocks_no_probe(self, receiver, pusher, tmp_path, clock):
        (tmp_path / "k").write_text("secret")
        pushed = message(receiver.url, push={"secret_ref": "k"})
        receiver.status = 500
        for _ in range(5):
            await failed(pusher, pushed)
        (tmp_path / "k").unlink()
        clock[0] = 60_000_000_000
        assert "secret k" in str(await paused(pusher, pushed))
        (tmp_path / "k").write_text("secret")
        receiver.status = 200
        await pusher(pushed)

    async def test_each_topic_has_its_own_breaker(self, receiver, pusher):
        """One customer's failures never pause another one, even with the same address."""
        receiver.status = 500
        for _ in range(5):
            await failed(pusher, message(receiver.url, project="bad"))
        receiver.status = 200
        await pusher(message(receiver.url, project="good"))
        await paused(pusher, message(receiver.url, project="bad"))

    async def test_changed_settings_are_tried_at_once(self, receiver, pusher):
        receiver.status = 500
        for _ in range(5):
            await failed(pusher, message(receiver.url))
        receiver.status = 200
        await pusher(message(receiver.url, push={"headers": {"Authorization": "new"}}))
