"""Topic client: specs are written, and take effect with a leader or without one."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.client import TopicClient, read_config_or_defaults
from evenlane.engine.control.topics.status import describe_spec
from evenlane.engine.errors import EvenlaneError, InvalidName, InvalidTopic, UnknownProject
from evenlane.ring.coordination.memory.client import MemoryCoordination

CLUSTER_CONFIG = ClusterConfig()


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def topic_client(etcd):
    return TopicClient(etcd, "online", CLUSTER_CONFIG)


async def in_effect(etcd, project):
    topic_cache = TopicCache(etcd, "online")
    await topic_cache.start()
    await topic_cache.close()
    return topic_cache.get(project)


async def test_spec_takes_effect_at_once_without_a_leader(etcd, topic_client):
    status = await topic_client.change("acme", {"qps": 100})
    assert (True, None) == (status.is_accepted, status.problem)
    accepted = await in_effect(etcd, "acme")
    assert (100.0, 2, 100.0, (), "active") == (
        accepted.topic.qps, accepted.active, accepted.topic.weight, accepted.draining, accepted.topic.state,
    )  # fmt: skip


async def test_change_affects_named_fields_and_none_restores_the_default(topic_client):
    await topic_client.change("acme", {"qps": 100, "concurrency": 5, "backoff": {"base": 3.0}})
    await topic_client.change("acme", {"weight": 7, "backoff": {"cap": 60.0}})
    status = await topic_client.change("acme", {"concurrency": None})
    topic = status.in_effect.topic
    assert (100.0, 7.0, None, 3.0, 60.0) == (
        topic.qps, topic.weight, topic.concurrency, topic.backoff.base, topic.backoff.cap,
    )  # fmt: skip
    assert {"qps", "weight", "backoff"} == set(status.spec)


async def test_removed_groups_drain_without_a_leader(topic_client):
    """K6."""
    await topic_client.change("acme", {"qps": 200})
    status = await topic_client.change("acme", {"qps": 100})
    assert (2, (2, 3)) == (status.in_effect.active, status.in_effect.draining)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "topic acme: qps is missing: a topic needs its messages per second"),
        ({"qps": -1}, "topic acme: qps must be a number from 0.01 to 1,000,000, not -1"),
        ({"qps": 100, "qsp": 1}, "topic acme: qsp is not a field of a topic"),
        ({"qps": 1_000, "groups": 2}, "topic acme: groups must be at least 7 for 1,000 QPS"),
        ({"qps": 1, "spread": 1_000}, "topic acme: spread must be at most 128"),
    ],
)
async def test_invalid_change_names_the_field_and_writes_nothing(etcd, topic_client, changes, sentence):
    with pytest.raises(InvalidTopic) as error:
        await topic_client.change("acme", changes)
    assert str(error.value).startswith(sentence)
    assert None is await etcd.get(names.key("online", "topics", "acme"))


async def test_change_waits_until_the_leader_accepts(etcd, topic_client):
    controller = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, "n1")
    await controller.start()
    await asyncio.wait_for(controller.leading.wait(), 30)
    try:
        status = await topic_client.change("acme", {"qps": 100})
        spec = await etcd.get(names.key("online", "topics", "acme"))
        assert (True, spec.mod_revision) == (status.is_accepted, status.in_effect.revision)
        assert (await topic_client.change("acme", {"qps": 50})).is_accepted
        status = await topic_client.delete("acme")
        assert (True, True, "paused") == (status.is_accepted, status.in_effect.deleted, status.in_effect.topic.state)
    finally:
        await controller.close()


async def test_later_leader_keeps_topics_accepted_without_it(etcd, topic_client):
    await topic_client.change("acme", {"qps": 200})
    await topic_client.change("acme", {"qps": 100})
    before = await in_effect(etcd, "acme")
    controller = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, "n1")
    await controller.start()
    try:
        await asyncio.wait_for(controller.leading.wait(), 30)
        status = await topic_client.change("other", {"qps": 1})
        after = await in_effect(etcd, "acme")
        assert (True, before.topic, before.active, before.draining) == (
            status.is_accepted, after.topic, after.active, after.draining,
        )  # fmt: skip
    finally:
        await controller.close()


async def test_spec_stays_unaccepted_under_a_silent_leader(etcd):
    topic_client = TopicClient(etcd, "online", CLUSTER_CONFIG, timeout_s=0.05)
    await etcd.put(names.key("online", "leader"), b"{}")
    status = await topic_client.change("acme", {"qps": 100})
    assert (False, None, None) == (status.is_accepted, status.problem, status.in_effect)
    assert None is await in_effect(etcd, "acme")
    [listed] = await topic_client.all()
    assert not listed.is_accepted


@pytest.mark.parametrize("leads", [False, True])
async def test_concurrent_changes_lose_no_field(etcd, topic_client, leads):
    controller = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, "n1")
    if leads:
        await controller.start()
        await asyncio.wait_for(controller.leading.wait(), 30)
    await topic_client.change("acme", {"qps": 100})
    fields = {"weight": 3, "burst": 4, "max_attempts": 6, "concurrency": 9, "ttl": 60}
    await asyncio.gather(*(topic_client.change("acme", {field: value}) for field, value in fields.items()))
    assert {"qps": 100.0, **fields} == json.loads((await etcd.get("/evenlane/online/topics/acme")).value)
    assert (await topic_client.get("acme")).is_accepted
    await controller.close()


async def test_deleted_topic_is_kept_paused_and_can_be_recreated(topic_client):
    """Fault row 19."""
    await topic_client.change("acme", {"qps": 200})
    status = await topic_client.delete("acme")
    assert (None, "paused", True, True, 0) == (
        status.spec, status.in_effect.topic.state, status.in_effect.deleted, status.is_accepted, status.revision,
    )  # fmt: skip
    assert status == await topic_client.get("acme")
    with pytest.raises(EvenlaneError, match="topic acme was already deleted: puts are refused, and waiting messages"):
        await topic_client.delete("acme")
    with pytest.raises(InvalidTopic, match="topic acme was deleted and is paused: `evenlane topics resume acme"):
        await topic_client.change("acme", {"state": "paused"}, known=True)
    revived = await topic_client.change("acme", {"qps": 50})
    assert ((1, 2, 3), False, "active") == (
        revived.in_effect.draining, revived.in_effect.deleted, revived.in_effect.topic.state,
    )  # fmt: skip


@pytest.mark.parametrize("state", ["draining", "active"])
async def test_drained_or_resumed_topic_has_its_settings_again(topic_client, state):
    """The new spec names no default, so that a later change of qps also changes the groups."""
    made = await topic_client.change("acme", {"qps": 200, "concurrency": 7, "backoff": {"base": 3}})
    await topic_client.delete("acme")
    again = await topic_client.change("acme", {"state": state}, known=True)
    assert replace(made.in_effect.topic, state=state) == again.in_effect.topic
    assert {"qps", "concurrency", "backoff", "state"} == set(again.spec)
    assert not again.in_effect.deleted
    assert 20 == (await topic_client.change("acme", {"qps": 1_000})).in_effect.active


async def test_ordered_topic_may_move_keys_after_deletion_only_if_drained(topic_client):
    """Waiting messages of a key are not overtaken."""
    await topic_client.change("acme", {"qps": 100, "ordered": True, "groups": 1})
    await topic_client.delete("acme")
    assert not await topic_client.would_move_keys("acme", {"state": "active"}, known=True)
    await topic_client.change("acme", {"state": "draining"}, known=True)
    assert await topic_client.would_move_keys("acme", {"state": "active", "groups": 4}, known=True)


async def test_deleted_topic_continues_to_drain(topic_client):
    await topic_client.change("acme", {"qps": 200, "state": "draining"})
    gone = (await topic_client.delete("acme")).in_effect
    assert ("draining", True) == (gone.topic.state, gone.deleted)
    with pytest.raises(EvenlaneError, match="already deleted: puts are refused, waiting messages are still handled"):
        await topic_client.delete("acme")


class TestIfRevision:
    """A change is rejected if its author has seen another revision of the spec."""

    async def test_seen_revision_is_accepted(self, topic_client):
        first = await topic_client.change("acme", {"qps": 1}, if_revision=0)
        second = await topic_client.change("acme", {"qps": 2}, if_revision=first.revision)
        assert second.revision > first.revision
        assert None is (await topic_client.delete("acme", if_revision=second.revision)).spec
        assert 3 == (await topic_client.change("acme", {"qps": 3}, if_revision=0)).in_effect.topic.qps

    async def test_other_revision_is_rejected_with_its_author(self, etcd):
        ann, bob = (TopicClient(etcd, "online", CLUSTER_CONFIG, by) for by in ("ann@host", "bob@host"))
        seen = await ann.change("acme", {"qps": 1})
        now = await bob.change("acme", {"qps": 2})
        for change in (
            ann.change("acme", {"qps": 3}, if_revision=seen.revision),
            ann.delete("acme", if_revision=seen.revision),
            ann.change("acme", {"qps": 3}, if_revision=0),
        ):
            with pytest.raises(EvenlaneError, match=f"its spec is at revision {now.revision}, by bob@host: check it"):
                await change
        assert 2 == (await ann.get("acme")).in_effect.topic.qps

    async def test_author_of_a_direct_write_is_unknown(self, etcd, topic_client):
        seen = await TopicClient(etcd, "online", CLUSTER_CONFIG, "ann@host").change("acme", {"qps": 1})
        now = await etcd.put(names.key("online", "topics", "acme"), b'{"qps": 2}')
        with pytest.raises(EvenlaneError, match=f"at revision {now}, whose author is unknown"):
            await topic_client.change("acme", {"qps": 3}, if_revision=seen.revision)
        await etcd.delete(names.key("online", "topics", "acme"))
        with pytest.raises(EvenlaneError, match="there is no spec for it"):
            await topic_client.change("acme", {"qps": 3}, if_revision=seen.revision)

    async def test_one_of_many_concurrent_changes_is_accepted(self, topic_client):
        seen = await topic_client.change("acme", {"qps": 1})
        edits = [topic_client.change("acme", {"qps": n}, if_revision=seen.revision) for n in range(2, 12)]
        done = await asyncio.gather(*edits, return_exceptions=True)
        assert 9 == sum(isinstance(each, EvenlaneError) for each in done)


class TestInvalidSpec:
    """Fault row 19: specs that were written directly into etcd."""

    async def by_hand(self, etcd, raw, project="acme"):
        await etcd.put(names.key("online", "topics", project), raw)

    async def test_is_shown_with_its_problem_and_can_be_repaired(self, etcd, topic_client):
        await self.by_hand(etcd, b'{"qps": "many", "concurrency": 7}')
        [status] = await topic_client.all()
        assert not status.is_accepted
        assert 'qps must be a number from 0.01 to 1,000,000, not "many"' == status.problem
        assert {"qps": "many", "concurrency": 7} == status.document()["wish"]
        repaired = await topic_client.change("acme", {"qps": 5})
        assert (True, {"qps": 5, "concurrency": 7}, None) == (repaired.is_accepted, repaired.spec, repaired.replaced)

    async def test_change_starts_from_the_topic_in_effect(self, etcd, topic_client):
        """Otherwise the repair of one field would reset the others."""
        await topic_client.change("acme", {"qps": 100, "concurrency": 5, "ttl": 60})
        await self.by_hand(etcd, b'{"qps": -1, "max_attempts": 7}')
        repaired = await topic_client.change("acme", {"qps": 200})
        assert {"qps": 200, "concurrency": 5, "ttl": 60} == repaired.spec
        assert "qps must be a number from 0.01 to 1,000,000, not -1" == repaired.replaced
        assert (await topic_client.change("acme", {"qps": 201})).replaced is None

    async def test_topic_can_be_paused(self, etcd, topic_client):
        await topic_client.change("acme", {"qps": 100, "concurrency": 5})
        await self.by_hand(etcd, b"rubbish")
        assert "paused" == (await topic_client.change("acme", {"state": "paused"}, known=True)).in_effect.topic.state

    async def test_repair_after_deletion_creates_a_new_topic(self, etcd, topic_client):
        await topic_client.change("acme", {"qps": 100, "concurrency": 5})
        await topic_client.delete("acme")
        await self.by_hand(etcd, b'{"qps": -1, "max_attempts": 7}')
        repaired = await topic_client.change("acme", {"qps": 200})
        assert ({"qps": 200, "max_attempts": 7}, None) == (repaired.spec, repaired.replaced)

    @pytest.mark.parametrize("name", ["a b", "a/b", "", "x" * 65, "\x1b[2J"])
    async def test_invalid_name_is_reported(self, etcd, topic_client, name):
        """Fault row 20."""
        await self.by_hand(etcd, b'{"qps": 5}', name)
        [status] = await topic_client.all()
        assert (False, True, {"qps": 5}) == (status.is_accepted, "is not valid" in status.problem, status.spec)

    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            (b'{"qps": -1}', {"qps": -1}),
            (b'{"qps": NaN, "ttl": [1, {"a": Infinity}]}', {"qps": "NaN", "ttl": "a list"}),
            (b'{"qps": "\\ud800", "\\ud800": 1}', {"qps": '"\\ud800"', '"\\ud800"': 1}),
            (b'{"push": "' + b"x" * 5_000 + b'"}', {"push": '"' + "x" * 36 + "..."}),
            (b"qps: 5", "qps: 5"),
            (b'{"qps": 1, "qps": 2}', '{"qps": 1, "qps": 2}'),
            (b"x" * 70_000, "x" * 200 + "..."),
            (b"\xff", "\ufffd"),
            (b"[" * 5_000, "[" * 200 + "..."),
            (b"", ""),
        ],
    )
    def test_any_value_can_be_shown(self, raw, shown):
        assert shown == describe_spec(raw)
        json.dumps(describe_spec(raw), ensure_ascii=False, allow_nan=False).encode()


async def test_invalid_or_unknown_project_raises(topic_client):
    with pytest.raises(InvalidName):
        await topic_client.change("a/b", {"qps": 1})
    with pytest.raises(InvalidName):
        await topic_client.get("")
    with pytest.raises(UnknownProject, match="`evenlane topics set nobody --qps 100 --env online` creates one"):
        await topic_client.get("nobody")


async def test_reading_creates_no_environment(etcd):
    assert ClusterConfig() == await read_config_or_defaults(etcd, "online")
    assert None is await etcd.get(names.key("online", "settings"))
