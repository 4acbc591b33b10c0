"""The producer on real servers (K6, P8, L)."""

import asyncio
import hashlib
from contextlib import asynccontextmanager

import nats
import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import ConfigError, NotAcknowledged, Unreachable
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.support.streams import all_stored
from tests.support.topics import put_specs
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
def settings(nats_server, etcd_server, env) -> Settings:
    return Settings(nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=16)


async def make_topics(settings, **topics):
    etcd = EtcdCoordination(settings.etcd)
    try:
        cluster_config = await agree_cluster_config(etcd, settings.env, {"partitions": 16})
        await put_specs(etcd, settings.env, cluster_config, topics)
    finally:
        await etcd.close()


@asynccontextmanager
async def open_store(settings):
    store = connections.store(settings, "test")
    await store.open()
    yield store
    await store.close()


async def stored_by(settings):
    return await all_stored(settings.nats[0], settings.env, 16)


async def test_producer_needs_only_servers_and_env(settings):
    """P8: no node has ever run; the producer creates the streams and agrees on the cluster config."""
    await make_topics(settings, acme='{"qps": 100}')
    async with Producer(nats=settings.nats, etcd=settings.etcd, env=settings.env) as producer:
        first = await producer.put("acme", b"one", key="k", headers={"X": "1"})
        again = [await producer.put("acme", b"two", id="2") for _ in range(2)]
    assert (False, True) == (again[0].duplicate, again[1].duplicate)
    assert (first.stream.startswith(f"LANES_{settings.env}_"), 1) == (True, first.sequence)
    assert {b"one", b"two"} == {message.body for message in await stored_by(settings)}


async def test_new_topic_can_be_put_to_at_once(settings):
    await make_topics(settings)
    async with Producer(settings=settings) as producer:
        for number in range(5):
            await make_topics(settings, **{f"late-{number}": '{"qps": 1}'})
            assert isinstance(await producer.put(f"late-{number}", b"x", delay=60), Receipt)
            many = [Put(f"late-{number}", b"x", delay=60)] * 10
            assert [Receipt] * 10 == [type(each) for each in await producer.put_many(many)]


async def test_kill_9_during_20_000_puts_loses_and_duplicates_none(settings, nats_server):
    """L, K6, faults 1 and 2: each acknowledged put is stored exactly once, and only stored puts are acknowledged."""
    await make_topics(settings, acme='{"qps": 1000}')
    total, outcomes = 20_000, {}
    async with open_store(settings) as store, Producer(settings=settings, store=store) as producer:
        losses = []
        store.on_lost.append(lambda: losses.append(len(outcomes)))
        many = (Put("acme", b"%d" % number, id=f"n{number}") for number in range(total))
        putting = asyncio.create_task(producer.put_each(many, outcomes.__setitem__))
        for acknowledged in (3_000, 10_000):
            await until(lambda least=acknowledged: len(outcomes) > least)
            await nats_server.kill()
            await nats_server.start()
        await putting
        assert 2 == len(losses)
    assert [] == [outcome for outcome in outcomes.values() if not isinstance(outcome, Receipt)]
    stored = await stored_by(settings)
    ids = [h.value(message.headers, h.ID) for message in stored]
    assert sorted(f"acme:n{number}" for number in range(total)) == sorted(ids)
    where = {(f"LANES_{settings.env}_{m.subject.split('.')[2]}", m.sequence): m.body for m in stored}
    wrong = {n: outcome for n, outcome in outcomes.items() if where[outcome.stream, outcome.sequence] != b"%d" % n}
    assert {} == wrong


async def test_unacknowledged_puts_are_never_reported_as_put(settings, nats_server):
    """L, K6: the server dies, and stays away for longer than the producer's timeout."""
    await make_topics(settings, acme='{"qps": 1000}')
    outcomes = {}
    async with Producer(settings=settings, timeout=1.0) as producer:
        many = (Put("acme", b"%d" % number, id=f"n{number}") for number in range(10_000))
        putting = asyncio.create_task(producer.put_each(many, outcomes.__setitem__))
        await until(lambda: len(outcomes) > 3_000)
        await nats_server.kill()
        await putting
    put = {b"%d" % number for number, outcome in outcomes.items() if isinstance(outcome, Receipt)}
    assert {NotAcknowledged} == {type(each) for each in outcomes.values() if not isinstance(each, Receipt)}
    await nats_server.start()
    bodies = [message.body for message in await stored_by(settings)]
    assert (10_000, len(bodies)) == (len(outcomes), len(set(bodies)))
    assert put <= set(bodies)


async def test_plain_client_meets_producer_on_same_subject_and_id(settings):
    """P8: clients in other languages publish by the documented formula."""
    await make_topics(settings, acme='{"qps": 400, "spread": 4}')
    async with Producer(settings=settings) as producer:
        client = await nats.connect(settings.nats[0])
        for number in range(20):
            key = f"customer-{number}"
            mine = await producer.put("acme", b"x", key=key, id=f"i{number}", priority="high")
            subject = _documented_subject(settings.env, "acme", key, groups=8, spread=4, partitions=16)
            theirs = await client.jetstream().publish(subject, b"x", headers={"Nats-Msg-Id": f"acme:i{number}"})
            assert (mine.stream, mine.sequence, True) == (theirs.stream, theirs.seq, theirs.duplicate)
        await client.close()
    assert 20 == len(await stored_by(settings))


def _documented_subject(env: str, project: str, key: str, groups: int, spread: int, partitions: int) -> str:
    """docs/reference/headers-and-subjects.md in code, independent of the product's."""
    state = int.from_bytes(hashlib.sha256(key.encode()).digest()[24:], "big")
    bucket, candidate = -1, 0
    while candidate < groups:
        bucket = candidate
        state = (state * 2862933555777941757 + 1) % 2**64
        candidate = int((bucket + 1) * (2**31 / ((state >> 33) + 1)))
    slot = bucket % spread
    name = project if slot == 0 else f"{project}/{slot}"
    partition = int(hashlib.sha256(name.encode()).hexdigest(), 16) % partitions
    return f"lanes.{env}.{partition}.{project}.{bucket}.high"


async def test_unreachable_servers_are_named(nats_server, etcd_server):
    with pytest.raises(Unreachable, match=r"etcd at 127\.0\.0\.1:1 does not answer"):
        await Producer(settings=Settings(nats=(nats_server.url,), etcd=("127.0.0.1:1",))).open()
    with pytest.raises(Unreachable, match=r"NATS at nats://127\.0\.0\.1:1 does not answer"):
        await Producer(settings=Settings(nats=("nats://127.0.0.1:1",), etcd=(etcd_server.endpoint,))).open()


async def test_producer_with_other_cluster_config_does_not_start(settings):
    await make_topics(settings)
    other = Settings(nats=settings.nats, etcd=settings.etcd, env=settings.env, partitions=8)
    with pytest.raises(ConfigError, match="partitions is 8 here but 16"):
        await Producer(settings=other).open()
