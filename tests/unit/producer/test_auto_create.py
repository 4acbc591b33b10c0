"""Puts to a project whose topic this process doesn't know (K6, P8; fault 21), on etcd in memory."""

import asyncio

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.template_cache import TemplateCache
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.templates.provisioner import TopicProvisioner
from evenlane.engine.errors import UnknownProject
from evenlane.engine.producer.auto_create import TopicAutoCreate
from evenlane.ring.coordination.memory.client import MemoryCoordination
from tests.support.topics import put_specs
from tests.support.until import until

REFUSAL = UnknownProject("no topic")


class CountingCoordination:
    """A coordination that notes the keys that are read."""

    def __init__(self, inner):
        self._inner, self.gets = inner, []

    async def get(self, key):
        self.gets.append(key)
        return await self._inner.get(key)


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
async def made(etcd, request):
    """A producer's parts, whose watch has reported nothing yet; the parameter is `again_s`."""
    client = etcd.peer()
    template_cache, topics = TemplateCache(client, "online"), TopicCache(client, "online")
    counted = CountingCoordination(client)
    auto_create = TopicAutoCreate(
        counted, "online", TopicProvisioner(client, "online", ClusterConfig(), template_cache, via="a put"), topics,
        again_s=getattr(request, "param", 1.0),
    )  # fmt: skip
    yield client, counted, auto_create, topics
    await topics.close()
    await template_cache.close()


async def test_puts_wait_for_accepted_topic_with_one_read(etcd, made):
    """After `topics set` has returned, the next put succeeds, however late the watch of its producer is."""
    _, counted, auto_create, topics = made
    await put_specs(etcd, "online", ClusterConfig(), {"acme": '{"qps": 100}'})
    put = asyncio.gather(*(auto_create.ensure_topic("acme", REFUSAL) for _ in range(100)))
    await until(lambda: len(topics.on_change) == 100)
    assert ["/evenlane/online/accepted/acme"] == counted.gets
    await topics.start()
    await put
    await auto_create.ensure_topic("acme", REFUSAL)
    assert 1 == len(counted.gets)
    assert topics.get("acme") is not None


async def test_project_without_topic_costs_one_read(made):
    _, counted, auto_create, _ = made
    outcomes = await asyncio.gather(
        *(auto_create.ensure_topic("acme", REFUSAL) for _ in range(100)), return_exceptions=True
    )
    assert {REFUSAL} == {*outcomes}
    assert ["/evenlane/online/accepted/acme"] == counted.gets
    assert auto_create.is_hopeless("acme")
    assert not auto_create.is_hopeless("other")


@pytest.mark.parametrize("made", [0.0], indirect=True)
async def test_etcd_is_read_again_after_pause(etcd, made):
    _, counted, auto_create, topics = made
    with pytest.raises(UnknownProject):
        await auto_create.ensure_topic("acme", REFUSAL)
    await put_specs(etcd, "online", ClusterConfig(), {"acme": '{"qps": 100}'})
    put = asyncio.create_task(auto_create.ensure_topic("acme", REFUSAL))
    await until(lambda: len(counted.gets) == 2)
    await topics.start()
    await put


@pytest.mark.parametrize("made", [3_600.0], indirect=True)
async def test_random_names_cause_few_etcd_reads(made):
    """Fault 21."""
    _, counted, auto_create, _ = made
    for number in range(1_000):
        with pytest.raises(UnknownProject):
            await auto_create.ensure_topic(f"dev-{number}", REFUSAL)
    assert 100 == len(counted.gets)
    assert auto_create.is_hopeless("dev-1000")


@pytest.mark.parametrize("made", [3_600.0], indirect=True)
async def test_unreachable_etcd_is_not_read_at_each_put(made):
    client, counted, auto_create, _ = made
    client.cut()
    for _ in range(10):
        with pytest.raises(UnknownProject, match="no topic"):
            await auto_create.ensure_topic("acme", REFUSAL)
    assert 1 == len(counted.gets)
