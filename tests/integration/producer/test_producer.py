"""The producer on real servers (K6, P8, L)."""

import asyncio
import hashlib

import nats
import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import ConfigError, InvalidName, NotAcknowledged, PayloadTooLarge, Unreachable
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.pair import Servers
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.support.streams import all_stored
from tests.support.topics import put_specs
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
async def servers(tmp_path):
    async with Servers(tmp_path, fast=True, nats_config="max_payload: 64KB") as both:
        yield both


def settings_of(servers, **more) -> Settings:
    return Settings(nats=(servers.nats.url,), etcd=(servers.etcd.endpoint,), partitions=16, **more)


async def make_topics(servers, env="online", **topics):
    etcd = EtcdCoordination([servers.etcd.endpoint])
    try:
        cluster_config = await agree_cluster_config(etcd, env, {"partitions": 16})
        await put_specs(etcd, env, cluster_config, topics)
    finally:
        await etcd.close()


async def test_a_producer_needs_nobody_else_and_finds_everything_from_three_arguments(servers):
    """P8: no node has ever run; the producer makes the streams and agrees on the facts."""
    await make_topics(servers, acme='{"qps": 100}')
    async with Producer(nats=servers.nats.url, etcd=servers.etcd.endpoint, env="online") as producer:
        first = await producer.put("acme", b"one", key="k", headers={"X": "1"})
        again = [await producer.put("acme", b"two", id="2") for _ in range(2)]
    assert (False, True) == (again[0].duplicate, again[1].duplicate)
    assert (first.stream.startswith("LANES_online_"), 1) == (True, first.sequence)
    stored = await all_stored(servers.nats.url, "online", 16)
    assert {b"one", b"two"} == {message.body for message in stored}


async def test_a_topic_made_while_the_producer_runs_can_be_put_to(servers):
    await make_topics(servers)
    async with Producer(settings=settings_of(servers)) as producer:
        for number in range(10):
            await make_topics(servers, **{f"late-{number}": '{"qps": 1}'})
            assert isinstance(await producer.put(f"late-{number}", b"x", delay=60), Receipt)
            made = [Put(f"late-{number}", b"x", delay=60)] * 10
            assert [Receipt] * 10 == [type(each) for each in await producer.put_many(made)]


async def test_many_are_stored_once_each_and_batches_are_quick(servers):
    """K6: batches."""
    await make_topics(servers, acme='{"qps": 1000}')
    async with Producer(settings=settings_of(servers)) as producer:
        many = [Put("acme", b"%d" % number, id=f"n{number % 9_000}") for number in range(10_000)]
        outcomes = await producer.put_many(many)
    assert 9_000 == sum(not outcome.duplicate for outcome in outcomes)
    bodies = [message.body for message in await all_stored(servers.nats.url, "online", 16)]
    assert {b"%d" % number for number in range(9_000)} == set(bodies)
    assert 9_000 == len(bodies)


async def test_kill_9_in_the_middle_of_20_000_puts_loses_and_doubles_none(servers):
    """L, K6, faults 1 and 2: what is acknowledged is in the streams exactly once; what isn't, isn't reported put."""
    await make_topics(servers, acme='{"qps": 1000}')
    total, outcomes = 20_000, {}
    async with Producer(settings=settings_of(servers)) as producer:
        many = (Put("acme", b"%d" % number, id=f"n{number}") for number in range(total))
        putting = asyncio.create_task(producer.put_each(many, outcomes.__setitem__))
        for acknowledged in (3_000, 10_000):
            await until(lambda least=acknowledged: len(outcomes) > least)
            await servers.nats.kill()
            await servers.nats.start()
        await putting
        assert producer._pipeline._sender._store.incarnation >= 4, "it was in the middle twice"
    assert [] == [outcome for outcome in outcomes.values() if not isinstance(outcome, Receipt)]
    stored = await all_stored(servers.nats.url, "online", 16)
    ids = [h.value(message.headers, h.ID) for message in stored]
    assert sorted(f"acme:n{number}" for number in range(total)) == sorted(ids)
    where = {(f"LANES_online_{m.subject.split('.')[2]}", m.sequence): m.body for m in stored}
    wrong = {n: outcome for n, outcome in outcomes.items() if where[outcome.stream, outcome.sequence] != b"%d" % n}
    assert {} == wrong


async def test_what_is_not_acknowledged_is_never_reported_as_put(servers):
    """L, K6: the server dies in the middle and stays away longer than the producer's timeout."""
    await make_topics(servers, acme='{"qps": 1000}')
    outcomes = {}
    async with Producer(settings=settings_of(servers), timeout=1.0) as producer:
        many = (Put("acme", b"%d" % number, id=f"n{number}") for number in range(10_000))
        putting = asyncio.create_task(producer.put_each(many, outcomes.__setitem__))
        await until(lambda: len(outcomes) > 3_000)
        await servers.nats.kill()
        await putting
    put = {b"%d" % number for number, outcome in outcomes.items() if isinstance(outcome, Receipt)}
    assert {NotAcknowledged} == {type(each) for each in outcomes.values() if not isinstance(each, Receipt)}
    await servers.nats.start()
    bodies = [message.body for message in await all_stored(servers.nats.url, "online", 16)]
    assert (10_000, len(bodies)) == (len(outcomes), len(set(bodies)))
    assert put <= set(bodies)


async def test_a_plain_client_puts_by_the_documented_formula(servers):
    """P8: another language puts by publishing; it meets the producer on the same subject, and its id."""
    await make_topics(servers, acme='{"qps": 400, "spread": 4}')
    async with Producer(settings=settings_of(servers)) as producer:
        client = await nats.connect(servers.nats.url)
        for number in range(20):
            key = f"customer-{number}"
            mine = await producer.put("acme", b"x", key=key, id=f"i{number}", priority="high")
            subject = _subject_by_hand("acme", key, groups=8, spread=4, partitions=16)
            theirs = await client.jetstream().publish(subject, b"x", headers={"Nats-Msg-Id": f"acme:i{number}"})
            assert (mine.stream, mine.sequence, True) == (theirs.stream, theirs.seq, theirs.duplicate)
        await client.close()
    assert 20 == len(await all_stored(servers.nats.url, "online", 16))


def _subject_by_hand(project: str, key: str, groups: int, spread: int, partitions: int) -> str:
    """docs/reference/headers-and-subjects.md written down a second time, without anything of ours."""
    state = int.from_bytes(hashlib.sha256(key.encode()).digest()[24:], "big")
    bucket, candidate = -1, 0
    while candidate < groups:
        bucket = candidate
        state = (state * 2862933555777941757 + 1) % 2**64
        candidate = int((bucket + 1) * (2**31 / ((state >> 33) + 1)))
    slot = bucket % spread
    name = project if slot == 0 else f"{project}/{slot}"
    partition = int(hashlib.sha256(name.encode()).hexdigest(), 16) % partitions
    return f"lanes.online.{partition}.{project}.{bucket}.high"


async def test_what_no_subject_can_hold_is_refused_and_the_connection_lives(servers):
    """Fault 20: `*`, `>`, a subject of 5,000 bytes, line ends: nothing reaches the wire."""
    await make_topics(servers, acme='{"qps": 1}')
    async with Producer(settings=settings_of(servers)) as producer:
        for project in (
            "*",
            ">",
            ".",
            "",
            " ",
            "a\r\nPUB lanes.online.0.acme.0.mid 1\r\nx",
            "ü",
            "a" * 5_000,
            "$JS",
        ):
            with pytest.raises(InvalidName):
                await producer.put(project, b"x")
        with pytest.raises(PayloadTooLarge, match="the server takes at most 65,536"):
            await producer.put("acme", b"x" * 65_536)
        incarnation = producer._pipeline._sender._store.incarnation
        await producer.put("acme", b"x")
        assert incarnation == producer._pipeline._sender._store.incarnation
    assert [b"x"] == [message.body for message in await all_stored(servers.nats.url, "online", 16)]


async def test_servers_that_do_not_answer_are_named(servers):
    with pytest.raises(Unreachable, match=r"etcd at 127\.0\.0\.1:1 does not answer"):
        await Producer(settings=Settings(nats=(servers.nats.url,), etcd=("127.0.0.1:1",))).open()
    with pytest.raises(Unreachable, match=r"NATS at nats://127\.0\.0\.1:1 does not answer"):
        await Producer(settings=Settings(nats=("nats://127.0.0.1:1",), etcd=(servers.etcd.endpoint,))).open()


async def test_a_producer_that_was_told_other_facts_does_not_start(servers):
    await make_topics(servers)
    with pytest.raises(ConfigError, match="partitions is 8 here but 16"):
        await Producer(settings=Settings(nats=(servers.nats.url,), etcd=(servers.etcd.endpoint,), partitions=8)).open()
