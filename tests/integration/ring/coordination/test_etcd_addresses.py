"""Members of etcd that get new addresses under their old names, as with a rolling restart of their pods."""

import pytest

from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import Listing, Unavailable
from tests.support.etcd.proxy import Proxy
from tests.support.until import until

pytestmark = pytest.mark.real

NAMES = ("etcd-0.example", "etcd-1.example")


class Members:
    """Proxies of an etcd under two names, whose addresses change. `addresses` is what a name server says."""

    def __init__(self, target: str) -> None:
        self._target, self.addresses = target, {}
        self._ports = {name: free_port() for name in NAMES}
        self._proxies: list[Proxy] = []

    @property
    def endpoints(self) -> list[str]:
        return [f"{name}:{port}" for name, port in self._ports.items()]

    def resolve(self, host: str) -> str:
        if host not in self.addresses:
            raise OSError("no such name")
        return self.addresses[host]

    async def move(self, address: str) -> None:
        await self.stop()
        self._proxies = [Proxy(self._target, endpoint=f"{address}:{port}") for port in self._ports.values()]
        for proxy in self._proxies:
            await proxy.start()
        self.addresses = dict.fromkeys(NAMES, address)

    async def stop(self) -> None:
        for proxy in self._proxies:
            await proxy.cut()


@pytest.fixture
async def members(etcd_server):
    members = Members(etcd_server.endpoint)
    await members.move("127.0.0.1")
    yield members
    await members.stop()


async def answers(client):
    try:
        return await client.status()
    except Unavailable:
        return ""


async def test_client_follows_names_to_new_addresses(members):
    """V: with two names or more, gRPC itself knows only their addresses."""
    client = EtcdCoordination(members.endpoints, resolve=members.resolve)
    assert await answers(client)
    await members.move("127.0.0.2")
    await until(lambda: answers(client), 30, "an answer from the new addresses")
    members.addresses = {}  # a name server that knows nothing for a while does no harm
    assert await answers(client)
    await members.move("127.0.0.3")
    await until(lambda: answers(client), 30, "an answer from the third addresses")
    await client.close()


async def test_watch_follows_names_to_new_addresses(members, prefix):
    client = EtcdCoordination(members.endpoints, resolve=members.resolve)
    watch = client.watch(prefix)
    assert isinstance(await anext(watch), Listing)
    await members.move("127.0.0.2")
    assert isinstance(await anext(watch), Listing)
    await until(lambda: answers(client), 30)
    await client.put(f"{prefix}key", b"x")
    assert (await anext(watch)).item.key == f"{prefix}key"
    await client.close()
