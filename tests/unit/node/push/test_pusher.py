"""E17 on real sockets: the requests that an endpoint gets, and the answers that settle a message."""

import asyncio
from time import time

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook
from structlog.testing import capture_logs

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.node.push.breaker import BreakerState
from evenlane.engine.node.push.client import PushTuning
from evenlane.engine.node.push.pusher import Pusher
from tests.support.push.pushing import breaker_of, failed, paused
from tests.support.push.receiver import message, receiving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class TestRequest:
    async def test_request_has_body_and_headers(self, receiver, pusher):
        await pusher(message(f"{receiver.url}/hook?a=%2F&sig=x%20y", body=b"\x00\xff raw", attempt=3))
        [seen] = receiver.seen
        assert ("POST", "/hook?a=%2F&sig=x%20y", b"\x00\xff raw") == (seen.method, seen.path, seen.body)
        assert ("application/octet-stream", "3") == (seen.headers["content-type"], seen.headers["evenlane-attempt"])
        assert receiver.url.removeprefix("http://") == seen.headers["host"]
        assert "acme:order-17" == seen.headers["webhook-id"]
        assert abs(int(seen.headers["webhook-timestamp"]) - time()) < 60
        assert "webhook-signature" not in seen.headers

    @pytest.mark.parametrize("body", [b"", b"x" * 3_000_000])
    async def test_body_may_be_empty_or_large(self, receiver, pusher, body):
        await pusher(message(receiver.url, body=body))
        assert (body, str(len(body))) == (receiver.seen[0].body, receiver.seen[0].headers["content-length"])

    async def test_each_secret_signs_the_request(self, receiver, pusher, tmp_path):
        """Independent oracle: standardwebhooks. During a rotation, the old and the new secret must both verify."""
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

    async def test_missing_secret_costs_no_attempt(self, receiver, pusher, tmp_path):
        pushed = message(receiver.url, push={"secret_ref": "gone"})
        with capture_logs() as logs:
            for _ in range(3):
                assert "secret gone can't be read" in str(await paused(pusher, pushed))
        assert [] == receiver.seen
        assert 1 == len(logs)
        (tmp_path / "gone").write_text(SECRET)
        await pusher(pushed)
        assert 1 == len(receiver.seen)

    async def test_request_has_headers_of_topic_and_message_but_no_injected_ones(self, receiver, pusher):
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

    async def test_connection_is_reused(self, receiver, pusher):
        receiver.body = b"x" * 10_000
        for _ in range(5):
            await pusher(message(receiver.url))
        assert 1 == len({seen.peer for seen in receiver.seen})

    async def test_cookies_are_not_kept(self, receiver, pusher):
        receiver.headers = {"Set-Cookie": "a=b"}
        for _ in range(2):
            await pusher(message(receiver.url))
        assert "cookie" not in receiver.seen[1].headers

    @pytest.mark.parametrize("pusher", [PushTuning(kept=4)], indirect=True)
    async def test_connections_beyond_a_limit_are_closed(self, pusher):
        async with receiving(host="0.0.0.0") as receiver:
            port = receiver.url.rpartition(":")[2]
            for n in range(20):
                await pusher(message(f"http://127.0.0.{n + 1}:{port}", project=f"p{n}"))
            assert ([None] * 4 + ["close"] * 16) == [seen.headers.get("connection") for seen in receiver.seen]
            await pusher(message(f"http://127.0.0.1:{port}"))
            assert receiver.seen[0].peer == receiver.seen[-1].peer


class TestSuccess:
    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    async def test_any_2xx_settles(self, receiver, pusher, status):
        receiver.status, receiver.body = status, b""
        await pusher(message(receiver.url))
        assert BreakerState.CLOSED is breaker_of(pusher).state

    async def test_huge_answer_is_not_read_to_its_end(self, receiver, pusher):
        """The status settles the message, and the connection is closed."""
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

    async def test_compressed_answer_is_not_decompressed(self, receiver, pusher):
        receiver.headers, receiver.body, receiver.status = {"Content-Encoding": "gzip"}, b"not gzip at all", 500
        assert "not gzip at all" in str(await failed(pusher, message(receiver.url)))

    @pytest.mark.parametrize("pusher", [PushTuning(rest_s=0.05)], indirect=True)
    async def test_slow_body_of_an_answer_is_cut_off(self, receiver, pusher):
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
        await asyncio.wait_for(gone.wait(), 30)


async def test_pusher_can_be_closed_twice_and_reopened(receiver):
    pusher = Pusher(Settings(push_private=True))
    await pusher.close()
    await pusher.open()
    await pusher(message(receiver.url))
    await pusher.close()
    await pusher.close()
    await pusher(message(receiver.url))
    await pusher.close()
    assert 2 == len(receiver.seen)
