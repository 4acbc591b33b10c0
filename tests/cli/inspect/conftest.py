"""Dead letters in the test's own environment."""

import asyncio
from collections import Counter

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import load
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.core.ports import Stored
from evenlane.engine.core.wire import headers as h
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from tests.support.dead_letters import bury
from tests.support.streams import all_stored
from tests.support.until import until


class Environment:
    """The dead letters and lanes of the test's own environment."""

    def __init__(self, url: str, env: str) -> None:
        self.url, self.env = url, env

    def bury(self, *owns: str, **more) -> None:
        async def work(store):
            for start in range(0, len(owns), 500):
                some = owns[start : start + 500]
                await asyncio.gather(*(bury(store, own, env=self.env, **more) for own in some))

        self.with_store(work)

    def with_store(self, work):
        async def ask():
            store = JetStreamStore(NatsOptions((self.url,)), self.env, duplicate_window_s=1, feeds_apart=False)
            await store.open()
            try:
                await store.prepare([])
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(ask())

    def queued(self) -> list[Stored]:
        return asyncio.run(all_stored(self.url, self.env, 4))

    def ids(self) -> Counter:
        """The ids of the messages in the lanes, without the message that made the streams."""
        found = [message for message in self.queued() if message.body != b"first"]
        return Counter(h.value(message.headers, h.ID).split(":")[1] for message in found)

    def left(self, project: str = "acme") -> int:
        return self.with_store(lambda store: self._left(store, project))

    def wait_until_fewer(self, than: int, project: str = "acme") -> None:
        """Wait until fewer dead letters are left, as a replay goes on."""

        async def work(store):
            async def are_fewer() -> bool:
                return await self._left(store, project) < than

            await until(are_fewer)

        self.with_store(work)

    async def _left(self, store, project: str) -> int:
        return (await store.counts(names.DEAD)).get(names.dead_subject(self.env, project), 0)


@pytest.fixture
def place(servers, env, evenlane):
    assert 0 == evenlane("put", "acme", "first")[0]  # makes the streams
    return Environment(servers.nats.url, env)


@pytest.fixture
def written(etcd, monkeypatch):
    """Writes the settings of an environment, and values under its keys."""
    monkeypatch.setenv("EVENLANE_ETCD", etcd.endpoint)

    def write(env, values, **config):
        monkeypatch.setenv("EVENLANE_ENV", env)

        async def put():
            client = connections.etcd(load({}).settings)
            await agree_cluster_config(client, env, config)
            for name, value in values.items():
                await client.put(names.key(env, name), value)
            await client.close()

        asyncio.run(put())

    return write
