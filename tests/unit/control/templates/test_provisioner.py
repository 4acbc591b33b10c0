"""A topic for a project that has none, by a template (item 1 of topics as data; faults 19, 21), on etcd in memory."""

import asyncio
import contextlib
import json

import pytest
from structlog.testing import capture_logs

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.template_cache import TemplateCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.templates.counter import CreatedTopicCounter
from evenlane.engine.control.templates.provisioner import TopicProvisioner, Tuning
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


def maker(etcd, cluster_config=None, tuning=Tuning()):  # noqa: B008 - frozen
    client = etcd.peer()
    template_cache = TemplateCache(client, "online")
    return TopicProvisioner(client, "online", cluster_config or ClusterConfig(), template_cache, "a put", tuning)


@pytest.fixture
async def making(etcd, request):
    made = maker(etcd, tuning=getattr(request, "param", Tuning()))
    yield made
    await made._template_cache.close()


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


class TestOffByDefault:
    async def test_no_template_makes_nothing(self, etcd, making):
        assert not await making.make("dev-1")
        assert making.hopeless("dev-1")
        assert [] == await topics(etcd)

    async def test_nor_one_that_is_for_others(self, etcd, making):
        await template(etcd)
        assert not await making.make("acme")
        assert [] == await topics(etcd)

    async def test_before_it_has_looked_nothing_is_hopeless(self, making):
        assert not making.hopeless("dev-1")

    async def test_a_name_that_is_none(self, etcd, making):
        await template(etcd, match="*")
        with pytest.raises(InvalidName):
            await making.make("../settings")

    async def test_etcd_is_away(self, making, monkeypatch):
        async def away(_key):
            raise Unavailable("etcd is away")

        monkeypatch.setattr(making._coordination, "get", away)
        with pytest.raises(Unavailable):
            await making.make("dev-1")


class TestMade:
    async def test_where_nobody_leads_it_is_in_force_at_once(self, etcd, making):
        await template(etcd, groups=3)
        assert await making.make("dev-1")
        assert (10, 3) == ((found := await accepted(etcd, "dev-1")).topic.qps, found.active)

    async def test_by_whom(self, etcd, making):
        await template(etcd)
        await making.make("dev-1")
        spec = await etcd.get(f"{ROOT}topics/dev-1")
        author = author_of(await etcd.get(f"{ROOT}authors/dev-1"), spec.mod_revision)
        assert ("template dev", "a put") == (author.by, author.via)

    async def test_where_somebody_leads_it_is_waited_for(self, etcd, making):
        controller = TopicController(etcd.peer(), "online", ClusterConfig(), "one")
        await controller.start()
        await controller.leading.wait()
        await template(etcd)
        assert await making.make("dev-1")
        assert await accepted(etcd, "dev-1") is not None
        await controller.close()

    @pytest.mark.parametrize("making", [Tuning(timeout_s=0.05)], indirect=True)
    async def test_a_leader_that_does_nothing_is_waited_for_2_seconds(self, etcd, making):
        await etcd.put(f"{ROOT}leader", b"{}")
        await template(etcd)
        assert await making.make("dev-1")
        assert await accepted(etcd, "dev-1") is None

    async def test_what_is_there_stays(self, etcd, making):
        """A wish of somebody else, accepted or not, and a deleted topic that has a backlog."""
        await template(etcd)
        await making.make("dev-1")
        await etcd.delete(f"{ROOT}topics/dev-1")
        before = await accepted(etcd, "dev-1")
        assert await making.make("dev-1")
        assert ([], before) == (await topics(etcd), await accepted(etcd, "dev-1"))
        await etcd.put(f"{ROOT}topics/dev-2", b'{"qps": 99}')
        await making.make("dev-2")
        assert b'{"qps": 99}' == (await etcd.get(f"{ROOT}topics/dev-2")).value

    async def test_of_several_the_most_specific(self, etcd, making):
        await template(etcd, "all", "*")
        await template(etcd, "red", "dev-red-*", qps=3)
        await template(etcd, "dev", qps=2)
        for project in ("dev-red-1", "dev-1", "x"):
            await making.make(project)
        assert [3, 2, 10] == [(await accepted(etcd, each)).topic.qps for each in ("dev-red-1", "dev-1", "x")]

    async def test_a_template_that_changes_counts_from_then_on(self, etcd, making):
        await template(etcd)
        await making.make("dev-1")
        await template(etcd, qps=20)
        await until(lambda: making._template_cache.best("dev-2").template.topic == b'{"qps":20.0}')
        await making.make("dev-2")
        assert 20 == (await accepted(etcd, "dev-2")).topic.qps
        await etcd.delete(f"{ROOT}templates/dev")
        await until(lambda: making.hopeless("dev-3"))
        assert not await making.make("dev-3")

    @pytest.mark.parametrize("making", [Tuning(tries=5)], indirect=True)
    async def test_by_a_template_that_is_another_one_by_now_nothing_is_made(self, etcd, making):
        """The watch is late: what was deleted or changed must not act."""
        await template(etcd)
        await making._template_cache.opened()
        await making._template_cache.close()  # from here on it hears of nothing
        await template(etcd, qps=20)
        assert not await making.make("dev-1")
        assert [] == await topics(etcd)


class TestBad:
    @pytest.mark.parametrize("raw", [b"", b"{}", b'{"match": "dev-*", "topic": {"qps": 1e400}}', b"\xff" * 100_000])
    async def test_a_bad_one_is_passed_over_with_one_warning(self, etcd, making, raw, logged):
        """Fault 19."""
        await template(etcd, "all", "*")
        await etcd.put(f"{ROOT}templates/dev", raw)
        assert await making.make("dev-1")
        assert await making.make("dev-2")
        assert 1 == sum("passed over" in each["event"] for each in logged)

    async def test_a_new_listing_replaces_what_was_known(self, etcd, making, logged):
        """A watch that broke: what went meanwhile is gone, and what is bad still isn't said to be so again."""
        await template(etcd)
        await template(etcd, "red", "red-*")
        await etcd.put(f"{ROOT}templates/bad", b"{}")
        await making.make("red-1")
        client = making._coordination
        client.cut()
        await etcd.delete(f"{ROOT}templates/dev")
        client.disconnect_watches()
        client.heal()
        await until(lambda: making.hopeless("dev-1"))
        assert not making.hopeless("red-2")
        assert 1 == sum("passed over" in each["event"] for each in logged)

    async def test_one_with_a_name_that_is_none(self, etcd, making):
        await template(etcd, "a b", "*")
        assert not await making.make("dev-1")

    async def test_one_that_this_cluster_cannot_carry_out(self, etcd, making, logged):
        await template(etcd, qps=1_000, groups=1)
        assert not await making.make("dev-1")
        assert not await making.make("dev-2")
        assert [] == await topics(etcd)
        assert 1 == sum("passed over" in each["event"] for each in logged)


class TestLimit:
    async def test_the_refusal_says_so(self, etcd, making):
        """Fault 21: random names must not fill etcd."""
        await template(etcd, limit=3)
        for number in range(3):
            await making.make(f"dev-{number}")
        with pytest.raises(UnknownProject, match="template 'dev' makes none for it, as 3 that it made are there"):
            await making.make("dev-3")
        assert 3 == len(await topics(etcd))

    async def test_ten_thousand_names_cost_etcd_next_to_nothing(self, etcd, making, monkeypatch):
        """Fault 21."""
        await template(etcd, limit=2)
        for number in range(3):
            with contextlib.suppress(UnknownProject):
                await making.make(f"dev-{number}")

        def asked(*_):
            raise AssertionError("etcd was asked")

        for call in ("get", "list", "txn"):
            monkeypatch.setattr(making._coordination, call, asked)
        for number in range(10_000):
            with pytest.raises(UnknownProject):
                await making.make(f"dev-x{number}")

    async def test_never_exceeded_however_many_make_topics_at_once(self, etcd):
        """Eight processes, a hundred names each."""
        await template(etcd, limit=50)
        makers = [maker(etcd) for _ in range(8)]

        async def make(one, number):
            for each in range(100):
                with contextlib.suppress(UnknownProject):
                    await one.make(f"dev-{number}-{each}")

        await asyncio.gather(*(make(one, number) for number, one in enumerate(makers)))
        assert 50 == len(await topics(etcd))
        for one in makers:
            await one._template_cache.close()

    async def test_the_same_name_from_all_sides_is_one_topic(self, etcd):
        await template(etcd)
        makers = [maker(etcd) for _ in range(8)]
        assert all(await asyncio.gather(*(one.make("dev-1") for one in makers)))
        assert (["dev-1"], 1) == (await topics(etcd), (await CreatedTopicCounter(etcd, "online").made("dev", 9)).topics)
        for one in makers:
            await one._template_cache.close()

    @pytest.mark.parametrize("making", [Tuning(full_s=0.0)], indirect=True)
    async def test_what_was_deleted_or_is_somebody_elses_by_now_makes_room(self, etcd, making):
        await template(etcd, limit=3)
        for number in range(3):
            await making.make(f"dev-{number}")
        await etcd.delete(f"{ROOT}topics/dev-0")
        await etcd.put(f"{ROOT}topics/dev-1", b'{"qps": 50}')
        made = [await making.make(f"dev-{number}") for number in (3, 4)]
        assert [True, True] == made
        with pytest.raises(UnknownProject):
            await making.make("dev-5")

    async def test_a_counter_that_is_none_is_counted_anew(self, etcd, making):
        """Anybody may write to etcd."""
        await template(etcd)
        await making.make("dev-1")
        await etcd.put(f"{ROOT}templated/dev", b"nonsense")
        await making.make("dev-2")
        assert b'{"made":2}' == (await etcd.get(f"{ROOT}templated/dev")).value
