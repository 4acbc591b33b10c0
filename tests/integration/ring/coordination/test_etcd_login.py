"""etcd that wants a name and a password."""

import asyncio

import pytest

from evenlane.engine.runtime.embedded.etcd import request
from evenlane.ring.coordination.etcd.channel import etcd3
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import CoordinationError, Unavailable
from tests.support.etcd.hanging import hanging
from tests.support.etcd.harness import next_update, short

pytestmark = pytest.mark.real


class TestLogin:
    @pytest.fixture
    async def guarded(self, own_etcd):
        async def ask(path, **question):
            answer = await request(own_etcd.port, "POST", f"/v3/auth/{path}", question)
            assert "error" not in answer, answer

        await ask("user/add", name="root", password="secret")
        await ask("role/add", name="root")
        await ask("user/grant", user="root", role="root")
        await ask("enable")
        return own_etcd

    async def test_with_password(self, guarded):
        client = EtcdCoordination([guarded.endpoint], user="root", password="secret")
        lease = await client.grant(5)
        await client.put("a", b"1", lease)
        assert await client.keep_alive(lease) == 5
        assert ("listing", "a") == short(await next_update(client.watch("a")))
        await client.close()

    async def test_logs_in_again_when_the_token_has_run_out(self, guarded):
        client = EtcdCoordination([guarded.endpoint], user="root", password="secret")
        lease = await client.grant(5)
        for again in (client.list("a"), client.keep_alive(lease)):
            await _end_tokens(guarded)
            await again
        await _end_tokens(guarded)
        await asyncio.gather(*(client.put(f"a{n}", b"") for n in range(20)))
        await client.close()

    async def test_logins_that_hang_are_given_up_together(self, guarded):
        client = EtcdCoordination([guarded.endpoint], user="root", password="secret")
        async with hanging(guarded):
            async with asyncio.timeout(3.0):
                calls = (client.put("a", b"") for _ in range(50))
                results = await asyncio.gather(*calls, return_exceptions=True)
            assert {Unavailable} == set(map(type, results))
            async with asyncio.timeout(1.0):
                await client.close()

    async def test_status_needs_no_more_rights_than_ours(self, guarded):
        root = EtcdCoordination([guarded.endpoint], user="root", password="secret")
        connected, rpc = await root._connected(), etcd3.etcdrpc
        connected.auth_stub.UserAdd(
            rpc.AuthUserAddRequest(name="small", password="secret"), metadata=connected.metadata
        )
        await root.close()
        client = EtcdCoordination([guarded.endpoint], user="small", password="secret")
        assert await client.status() == "3.5.1"
        with pytest.raises(CoordinationError, match="refuses: permission denied"):
            await client.get("a")
        await client.close()

    async def test_a_wrong_password_is_refused(self, guarded):
        client = EtcdCoordination([guarded.endpoint], user="root", password="wrong")
        with pytest.raises(CoordinationError, match="refuses: authentication failed") as caught:
            await client.get("a")
        assert not isinstance(caught.value, Unavailable)
        assert "wrong" not in repr(client._address)
        await client.close()

    async def test_without_password_is_refused(self, guarded):
        client = EtcdCoordination([guarded.endpoint])
        with pytest.raises(CoordinationError, match="refuses: user name is empty"):
            await client.get("a")
        await client.close()


async def _end_tokens(server):
    """etcd forgets a user's tokens when his password is set."""
    root = EtcdCoordination([server.endpoint], user="root", password="secret")
    connected = await root._connected()
    connected.auth_stub.UserChangePassword(
        etcd3.etcdrpc.AuthUserChangePasswordRequest(name="root", password="secret"),
        2.0,
        metadata=connected.metadata,
    )
    await root.close()
