"""Topic provisioner: a project without a topic gets one from a template (faults 19, 21), on etcd in memory."""

import asyncio
import contextlib
import json

import pytest
from structlog.testing import capture_logs

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.template_cache import TemplateCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.templates.counter import CreatedTopicCounter
from evenlane.engine.control.templates.provisioner import ProvisionerTuning, TopicProvisioner
from evenlane.engine.control.topics.history import author_of
from evenlane.engine.errors import InvalidName, UnknownProject
from evenlane.quota.topics.topic import decode_accepted
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Unavailable
from tests.support.until import until

ROOT = "/evenlane/online/"


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def client(etcd):
    """The provisioner's own client of etcd."""
    return etcd.peer()


@pytest.fixture
async def template_cache(client):
    made = TemplateCache(client, "online")
    yield made
    await made.close()


@pytest.fixture
def provisioner(client, template_cache, request):
    tuning = getattr(request, "param", ProvisionerTuning())
    return TopicProvisioner(client, "online", ClusterConfig(), template_cache, "a put", tuning)


@pytest.fixture
async def eight_provisioners(etcd):
    """Those of eight processes."""
    caches = [TemplateCache(etcd.peer(), "online") for _ in range(8)]
    yield [TopicProvisioner(etcd.peer(), "online", ClusterConfig(), cache, "a put") for cache in caches]
    for cache in caches:
        await cache.close()


@pytest.fixture
def logged():
    with capture_logs() as lines:
        yield lines


async def template(etcd, name="dev", match="dev-*", limit=1_000, **topic):
    value = {"match": match, "topic": {"qps": 10, **topic}, "limit": limit}
    await etcd.put(f"{ROOT}templates/{name}", json.dumps(value).encode())


async def accepted(etcd, project):
    item = await etcd.get(f"{ROOT}accepted/{project}")
    return None if item is None else decode_accepted(item.value)


async def topics(etcd):
    return [item.key.rpartition("/")[2] for item in (await etcd.list(f"{ROOT}topics/")).items]


class TestNoTopic:
    async def test_without_templates_no_topic_is_created(self, etcd, provisioner):
        assert not await provisioner.make("dev-1")
        assert provisioner.is_hopeless("dev-1")
        assert [] == await topics(etcd)

    async def test_template_for_other_names_creates_no_topic(self, etcd, provisioner):
        await template(etcd)
        assert not await provisioner.make("acme")
        assert [] == await topics(etcd)

    async def test_no_project_is_hopeless_before_templates_are_read(self, provisioner):
        assert not provisioner.is_hopeless("dev-1")

    async def test_invalid_project_name_raises(self, etcd, provisioner):
        await template(etcd, match="*")
        with pytest.raises(InvalidName):
            await provisioner.make("../settings")

    async def test_unreachable_etcd_raises(self, client, provisioner):
        client.cut()
        with pytest.raises(Unavailable):
            await provisioner.make("dev-1")


class TestCreatedTopic:
    async def test_takes_effect_at_once_without_a_leader(self, etcd, provisioner):
        await template(etcd, groups=3)
        assert await provisioner.make("dev-1")
        assert (10, 3) == ((found := await accepted(etcd, "dev-1")).topic.qps, found.active)

    async def test_author_is_the_template(self, etcd, provisioner):
        await template(etcd)
        await provisioner.make("dev-1")
        spec = await etcd.get(f"{ROOT}topics/dev-1")
        author = author_of(await etcd.get(f"{ROOT}authors/dev-1"), spec.mod_revision)
        assert ("template dev", "a put") == (author.by, author.via)

    async def test_is_accepted_by_the_leader_before_make_returns(self, etcd, provisioner):
        controller = TopicController(etcd.peer(), "online", ClusterConfig(), "one")
        await controller.start()
        await controller.leading.wait()
        await template(etcd)
        assert await provisioner.make("dev-1")
        assert await accepted(etcd, "dev-1") is not None
        await controller.close()

    @pytest.mark.parametrize("provisioner", [ProvisionerTuning(timeout_s=0.05)], indirect=True)
    async def test_wait_for_a_silent_leader_is_bounded(self, etcd, provisioner):
        await etcd.put(f"{ROOT}leader", b"{}")
        await template(etcd)
        assert await provisioner.make("dev-1")
        assert await accepted(etcd, "dev-1") is None

    @pytest.mark.parametrize("provisioner", [ProvisionerTuning(timeout_s=0.05)], indirect=True)
    async def test_existing_topic_or_spec_is_kept(self, etcd, provisioner):
        """A deleted topic with a backlog, and another author's spec that is not accepted yet."""
        await template(etcd)
        await provisioner.make("dev-1")
        await etcd.delete(f"{ROOT}topics/dev-1")
        before = await accepted(etcd, "dev-1")
        assert await provisioner.make("dev-1")
        assert ([], before) == (await topics(etcd), await accepted(etcd, "dev-1"))
        await etcd.put(f"{ROOT}topics/dev-2", b'{"qps": 99}')
        await provisioner.make("dev-2")
        assert b'{"qps": 99}' == (await etcd.get(f"{ROOT}topics/dev-2")).value

    async def test_most_specific_template_wins(self, etcd, provisioner):
        await template(etcd, "all", "*")
        await template(etcd, "red", "dev-red-*", qps=3)
        await template(etcd, "dev", qps=2)
        for project in ("dev-red-1", "dev-1", "x"):
            await provisioner.make(project)
        assert [3, 2, 10] == [(await accepted(etcd, each)).topic.qps for each in ("dev-red-1", "dev-1", "x")]

    async def test_changed_template_applies_to_later_topics(self, etcd, template_cache, provisioner):
        await template(etcd)
        await provisioner.make("dev-1")
        await template(etcd, qps=20)
        await until(lambda: template_cache.best("dev-2").template.topic == b'{"qps":20.0}')
        await provisioner.make("dev-2")
        assert 20 == (await accepted(etcd, "dev-2")).topic.qps
        await etcd.delete(f"{ROOT}templates/dev")
        await until(lambda: provisioner.is_hopeless("dev-3"))
        assert not await provisioner.make("dev-3")

    @pytest.mark.parametrize("provisioner", [ProvisionerTuning(tries=5)], indirect=True)
    async def test_outdated_template_creates_no_topic(self, etcd, template_cache, provisioner):
        """The watch is late."""
        await template(etcd)
        await template_cache.open()
        await template_cache.close()  # later changes don't reach it
        await template(etcd, qps=20)
        assert not await provisioner.make("dev-1")
        assert [] == await topics(etcd)


class TestInvalidTemplate:
    @pytest.mark.parametrize("raw", [b"", b"{}", b'{"match": "dev-*", "topic": {"qps": 1e400}}', b"\xff" * 100_000])
    async def test_is_skipped_with_one_warning(self, etcd, provisioner, raw, logged):
        """Fault 19."""
        await template(etcd, "all", "*")
        await etcd.put(f"{ROOT}templates/dev", raw)
        assert await provisioner.make("dev-1")
        assert await provisioner.make("dev-2")
        assert 1 == sum("passed over" in each["event"] for each in logged)

    async def test_new_listing_repeats_no_warning(self, etcd, client, provisioner, logged):
        """After a broken watch, templates that were deleted meanwhile are gone."""
        await template(etcd)
        await template(etcd, "red", "red-*")
        await etcd.put(f"{ROOT}templates/bad", b"{}")
        await provisioner.make("red-1")
        client.cut()
        await etcd.delete(f"{ROOT}templates/dev")
        client.disconnect_watches()
        client.heal()
        await until(lambda: provisioner.is_hopeless("dev-1"))
        assert not provisioner.is_hopeless("red-2")
        assert 1 == sum("passed over" in each["event"] for each in logged)

    async def test_name_is_checked(self, etcd, provisioner):
        await template(etcd, "a b", "*")
        assert not await provisioner.make("dev-1")

    async def test_topic_beyond_cluster_limits_is_skipped_with_one_warning(self, etcd, provisioner, logged):
        await template(etcd, qps=1_000, groups=1)
        assert not await provisioner.make("dev-1")
        assert not await provisioner.make("dev-2")
        assert [] == await topics(etcd)
        assert 1 == sum("passed over" in each["event"] for each in logged)


class TestLimit:
    async def test_error_names_the_limit(self, etcd, provisioner):
        """Fault 21: random names must not fill etcd."""
        await template(etcd, limit=3)
        for number in range(3):
            await provisioner.make(f"dev-{number}")
        with pytest.raises(
            UnknownProject, match="template 'dev' creates none for it, as it has reached its limit of 3"
        ):
            await provisioner.make("dev-3")
        assert 3 == len(await topics(etcd))

    async def test_full_template_asks_etcd_no_more(self, etcd, client, provisioner):
        """Fault 21: ten thousand names."""
        await template(etcd, limit=2)
        for number in range(3):
            with contextlib.suppress(UnknownProject):
                await provisioner.make(f"dev-{number}")
        client.cut()
        for number in range(10_000):
            with pytest.raises(UnknownProject):
                await provisioner.make(f"dev-x{number}")

    async def test_holds_for_concurrent_processes(self, etcd, eight_provisioners):
        """Each creates topics for a hundred names."""
        await template(etcd, limit=50)

        async def make(one, number):
            for each in range(100):
                with contextlib.suppress(UnknownProject):
                    await one.make(f"dev-{number}-{each}")

        await asyncio.gather(*(make(one, number) for number, one in enumerate(eight_provisioners)))
        assert 50 == len(await topics(etcd))

    async def test_concurrent_requests_for_a_name_create_one_topic(self, etcd, eight_provisioners):
        await template(etcd)
        assert all(await asyncio.gather(*(one.make("dev-1") for one in eight_provisioners)))
        assert (["dev-1"], 1) == (
            await topics(etcd),
            (await CreatedTopicCounter(etcd, "online").read_count("dev", 9)).topics,
        )

    @pytest.mark.parametrize("provisioner", [ProvisionerTuning(full_s=0.0)], indirect=True)
    async def test_deleted_or_edited_topic_makes_room(self, etcd, provisioner):
        await template(etcd, limit=3)
        for number in range(3):
            await provisioner.make(f"dev-{number}")
        await etcd.delete(f"{ROOT}topics/dev-0")
        await etcd.put(f"{ROOT}topics/dev-1", b'{"qps": 50}')
        made = [await provisioner.make(f"dev-{number}") for number in (3, 4)]
        assert [True, True] == made
        with pytest.raises(UnknownProject):
            await provisioner.make("dev-5")

    async def test_corrupted_counter_is_recounted(self, etcd, provisioner):
        await template(etcd)
        await provisioner.make("dev-1")
        await etcd.put(f"{ROOT}templated/dev", b"nonsense")
        await provisioner.make("dev-2")
        assert b'{"made":2}' == (await etcd.get(f"{ROOT}templated/dev")).value
