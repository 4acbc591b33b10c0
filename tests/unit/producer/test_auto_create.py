"""A put to a project that this process hasn't heard of (K6, P8; fault 21), on etcd in memory."""

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


class Counting:
    """A coordination that counts what is asked of it."""

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
    """What a producer has, whose watch hasn't told it anything yet."""
    client = etcd.peer()
    template_cache, topics = TemplateCache(client, "online"), TopicCache(client, "online")
    asked = Counting(client)
    missing = TopicAutoCreate(
        asked, "online", TopicProvisioner(client, "online", ClusterConfig(), template_cache, via="a put"), topics,
        again_s=getattr(request, "param", 1.0),
    )  # fmt: skip
    yield client, asked, missing, topics
    await topics.close()
    await template_cache.close()


async def test_a_topic_that_is_in_force_is_waited_for(etcd, made):
    """`topics set` has returned: the next put goes through, however late the watch of its producer is."""
    _, asked, missing, topics = made
    await put_specs(etcd, "online", ClusterConfig(), {"acme": '{"qps": 100}'})
    put = asyncio.gather(*(missing.made("acme", REFUSAL) for _ in range(100)))
    await until(lambda: len(topics.on_change) == 100)
    assert ["/evenlane/online/accepted/acme"] == asked.gets
    await topics.start()
    await put
    await missing.made("acme", REFUSAL)
    assert 1 == len(asked.gets)
    assert topics.get("acme") is not None


async def test_who_has_none_is_asked_for_once(made):
    _, asked, missing, _ = made
    outcomes = await asyncio.gather(*(missing.made("acme", REFUSAL) for _ in range(100)), return_exceptions=True)
    assert {REFUSAL} == {*outcomes}
    assert ["/evenlane/online/accepted/acme"] == asked.gets
    assert missing.hopeless("acme")
    assert not missing.hopeless("other")


@pytest.mark.parametrize("made", [0.0], indirect=True)
async def test_and_again_when_some_time_has_passed(etcd, made):
    _, asked, missing, topics = made
    with pytest.raises(UnknownProject):
        await missing.made("acme", REFUSAL)
    await put_specs(etcd, "online", ClusterConfig(), {"acme": '{"qps": 100}'})
    put = asyncio.create_task(missing.made("acme", REFUSAL))
    await until(lambda: len(asked.gets) == 2)
    await topics.start()
    await put


@pytest.mark.parametrize("made", [3_600.0], indirect=True)
async def test_random_names_cost_etcd_next_to_nothing(made):
    """Fault 21."""
    _, asked, missing, _ = made
    for number in range(1_000):
        with pytest.raises(UnknownProject):
            await missing.made(f"dev-{number}", REFUSAL)
    assert 100 == len(asked.gets)
    assert missing.hopeless("dev-1000")


async def test_an_etcd_that_is_silent_is_not_asked_at_each_put(made):
    client, asked, missing, _ = made
    client.cut()
    for _ in range(10):
        with pytest.raises(UnknownProject, match="no topic"):
            await missing.made("acme", REFUSAL)
    assert 1 == len(asked.gets)
