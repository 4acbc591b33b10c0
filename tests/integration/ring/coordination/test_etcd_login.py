"""An etcd that requires a user name and a password."""

import _thread
import asyncio
import itertools
import threading

import aiohttp
import pytest

from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.ring.coordination.etcd.channel import Address
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import CoordinationError, Unavailable
from tests.integration.ring.coordination.test_etcd_watch import answers
from tests.support.etcd.hanging import hanging
from tests.support.etcd.harness import next_update, short
from tests.support.etcd.proxy import Proxy
from tests.support.until import until

pytestmark = pytest.mark.real

ROOT = {"user": "root", "password": "secret"}


async def post(server, path, **question):
    """Send a request to etcd's HTTP gateway, as root once authentication is enabled."""
    base = f"http://{server.endpoint}/v3"
    async with aiohttp.ClientSession() as session:
        login = {"name": "root", "password": "secret"}
        async with session.post(f"{base}/auth/authenticate", json=login) as response:
            token = (await response.json()).get("token", "")
        headers = {"authorization": token} if token else {}
        async with session.post(f"{base}/auth/{path}", json=question, headers=headers) as response:
            assert 200 == response.status, await response.text()


async def start_guarded(server):
    await server.start()
    await post(server, "user/add", name="root", password="secret")
    await post(server, "user/add", name="small", password="secret")
    await post(server, "role/add", name="root")
    await post(server, "user/grant", user="root", role="root")
    await post(server, "enable")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """An etcd with two users: root, and one without any rights."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), fast=True)
    asyncio.run(start_guarded(server))
    yield server
    asyncio.run(server.stop())


@pytest.fixture
async def proxy_to():
    """Call it with a server: starts a proxy for it."""
    made = []

    async def start(server):
        made.append(Proxy(server.endpoint))
        await made[-1].start()
        return made[-1]

    yield start
    for proxy in made:
        await proxy.cut()


async def test_login_permits_calls_and_watches_also_after_token_expires(guarded):
    client = EtcdCoordination([guarded.endpoint], **ROOT)
    lease = await client.grant(60)
    await client.put("a", b"1", lease)
    assert ("listing", "a") == short(await next_update(client.watch("a")))
    for again in (client.list("a"), client.keep_alive(lease)):
        await expire_tokens(guarded)
        await again
    await expire_tokens(guarded)
    await asyncio.gather(*(client.put(f"b{n}", b"") for n in range(20)))
    await client.close()


async def test_expired_login_is_renewed_when_no_thread_can_close_the_old_connection(guarded, proxy_to, monkeypatch):
    """E13: a handler may have used up the threads for a moment. The old connection is closed once there are some."""
    proxy = await proxy_to(guarded)
    client = EtcdCoordination([proxy.endpoint], **ROOT)
    await client.put("a", b"")
    await expire_tokens(guarded)
    start, starts = _thread.start_new_thread, itertools.count(1)

    def start_but_one(*arguments):
        if next(starts) == 2:  # the first one makes the call
            raise RuntimeError("can't start new thread")
        return start(*arguments)

    with monkeypatch.context() as exhausted:
        exhausted.setattr(_thread, "start_new_thread", start_but_one)
        await client.put("a", b"")
    await until(lambda: len(proxy.open) == 1)
    await client.close()
    await until(lambda: not proxy.open)


async def test_connection_that_comes_too_late_is_closed(guarded, proxy_to):
    """E13: the calls use the one that was made meanwhile."""
    proxy = await proxy_to(guarded)
    goes_on, logins = threading.Event(), itertools.count(1)

    def password():
        if next(logins) == 1:
            goes_on.wait()
        return ROOT["password"]

    client = EtcdCoordination([proxy.endpoint], user="root", password=password, deadline_s=1.0)
    with pytest.raises(Unavailable, match="no connection within"):
        await client.get("a")
    await until(lambda: answers(client))
    before, made_meanwhile = proxy.accepted, {*proxy.open}
    goes_on.set()
    await until(lambda: proxy.accepted == before + 1)
    await until(lambda: proxy.open == made_meanwhile)
    await client.put("a", b"")
    await client.close()
    await until(lambda: not proxy.open)


async def expire_tokens(server):
    """etcd drops a user's tokens when the password is set."""
    await post(server, "user/changepw", name="root", password="secret")


async def test_hanging_logins_time_out_together(guarded):
    client = EtcdCoordination([guarded.endpoint], **ROOT)
    async with hanging(guarded):
        async with asyncio.timeout(30):
            calls = (client.put("a", b"") for _ in range(50))
            results = await asyncio.gather(*calls, return_exceptions=True)
        assert {Unavailable} == set(map(type, results))
        async with asyncio.timeout(30):
            await client.close()


async def test_status_needs_no_rights(guarded):
    client = EtcdCoordination([guarded.endpoint], user="small", password="secret")
    assert await client.status() == "3.5.1"
    with pytest.raises(CoordinationError, match="refuses: permission denied"):
        await client.get("a")
    await client.close()


@pytest.mark.parametrize(
    ("login", "why"),
    [({"user": "root", "password": "wrong"}, "authentication failed"), ({}, "user name is empty")],
)
async def test_wrong_or_missing_login_is_refused(guarded, login, why):
    client = EtcdCoordination([guarded.endpoint], **login)
    with pytest.raises(
        CoordinationError, match=rf"refuses the login \(etcd_user and etcd_password_file\): {why}"
    ) as caught:
        await client.get("a")
    assert not isinstance(caught.value, Unavailable)
    await client.close()


def test_password_is_not_shown():
    assert "s3cret" not in repr(Address(("127.0.0.1:1",), user="root", password="s3cret"))
