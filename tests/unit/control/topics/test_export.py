"""Topic export: `topics apply` creates the same topics from it, and their export is the same (F2)."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane.engine.base.names import key
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.control.topics.export import export_topics, format_export
from evenlane.engine.control.topics.manifest import load_manifest
from evenlane.ring.coordination.memory.client import MemoryCoordination

CLUSTER_CONFIG = ClusterConfig()
HEADERS = st.dictionaries(st.sampled_from(["A", "X-Key"]), st.text("abc é", max_size=5).map(str.strip), max_size=2)
PUSH = st.fixed_dictionaries(
    {"url": st.just("https://acme.example/hook?a=1")},
    optional={
        "timeout": st.floats(0.01, 3_600),
        "secret_ref": st.none() | st.just("acme"),
        "headers": HEADERS.filter(lambda headers: all(value.isascii() for value in headers.values())),
        "concurrency": st.none() | st.integers(1, 9),
    },
)
BACKOFF = st.fixed_dictionaries(
    {},
    optional={
        "base": st.floats(0.001, 9),
        "factor": st.floats(1, 100),
        "cap": st.floats(9, 1e6),
        "jitter": st.floats(0, 1),
    },
)
TOPIC = st.fixed_dictionaries(
    {"qps": st.floats(0.01, 50) | st.integers(1, 50)},
    optional={
        "groups": st.integers(1, 64),
        "burst": st.integers(1, 1_000),
        "borrow": st.booleans(),
        "weight": st.floats(0.01, 1e6),
        "reserve": st.floats(0, 1e6),
        "concurrency": st.none() | st.integers(1, 1_000_000),
        "spread": st.integers(1, 128),
        "max_attempts": st.integers(1, 1_000),
        "backoff": BACKOFF,
        "ttl": st.floats(0.001, 1e8),
        "dead_letter_expired": st.booleans(),
        "ack_wait": st.floats(0.001, 1e5),
        "max_backlog": st.none() | st.integers(1, 10**15),
        "ordered": st.booleans(),
        "ageing": st.none() | st.floats(0, 1),
        "state": st.sampled_from(["active", "paused", "draining"]),
        "push": st.none() | PUSH,
    },
)
TOPICS = st.dictionaries(st.from_regex(r"[a-z0-9][A-Za-z0-9_-]{0,9}", fullmatch=True), TOPIC, max_size=5)


class Etcd:
    """An etcd with topics, and the commands on them."""

    def __init__(self):
        self.coordination = MemoryCoordination()
        self.topic_client = TopicClient(self.coordination, "online", CLUSTER_CONFIG)

    async def export(self):
        return format_export(export_topics(await self.topic_client.all()))

    async def notes(self):
        return export_topics(await self.topic_client.all()).notes

    async def apply(self, file, raw):
        file.write_bytes(raw)
        manifest = load_manifest(file)
        assert {} == manifest.wrong
        apply_plan = ApplyPlan(self.coordination, "online", CLUSTER_CONFIG)
        outcome = await apply_plan.carry_out(await apply_plan.plan(manifest))
        assert ({}, [], None) == (outcome.refused, outcome.waiting, outcome.broken)

    async def put(self, kind, project, raw):
        await self.coordination.put(key("online", kind, project), raw)

    async def in_effect(self):
        return {each.project: each.in_effect.topic for each in await self.topic_client.all()}


@pytest.fixture
def etcd():
    return Etcd()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("export") / "topics.json"


@settings(max_examples=40)
@given(TOPICS)
def test_applied_export_gives_equal_topics_and_an_equal_export(file, topics):
    async def round_trip():
        before, after = Etcd(), Etcd()
        await before.apply(file, json.dumps(topics).encode())
        exported_first = await before.export()
        await after.apply(file, exported_first)
        assert exported_first == await after.export()
        assert await before.in_effect() == await after.in_effect()
        assert {*topics} == {*json.loads(exported_first)}

    asyncio.run(round_trip())


async def test_names_and_fields_have_a_fixed_order(etcd):
    await etcd.put("topics", "b", b'{"state": "paused", "weight": 2.5, "qps": 100}')
    await etcd.put("topics", "a", b'{"qps": 1}')
    assert '{"a": {"qps": 1}, "b": {"qps": 100, "weight": 2.5, "state": "paused"}}' == json.dumps(
        json.loads(await etcd.export())
    )


async def test_ordered_topic_keeps_its_groups(etcd, file):
    """With the groups of its quota, the next messages of a key would overtake the waiting ones."""
    await etcd.topic_client.change("acme", {"qps": 100, "ordered": True})
    await etcd.topic_client.change("acme", {"qps": 200})
    after = Etcd()
    await after.apply(file, await etcd.export())
    assert (200, 2) == ((topic := (await after.in_effect())["acme"]).qps, topic.groups)
    assert await etcd.in_effect() == await after.in_effect()


async def test_derived_fields_are_left_out(etcd, file):
    """They follow a later change of the quota."""
    await etcd.topic_client.change("acme", {"qps": 100})
    after = Etcd()
    await after.apply(file, await etcd.export())
    await after.topic_client.change("acme", {"qps": 1_000})
    assert (1_000, 20) == ((topic := (await after.in_effect())["acme"]).weight, topic.groups)


class TestNotes:
    async def test_deleted_topic_is_left_out_with_a_note(self, etcd):
        await etcd.topic_client.change("acme", {"qps": 100})
        await etcd.topic_client.delete("acme")
        assert b"{}\n" == await etcd.export()
        assert {"acme": "it is deleted and not in the file, which would recreate it"} == await etcd.notes()

    async def test_topic_in_effect_replaces_an_invalid_spec(self, etcd, file):
        await etcd.topic_client.change("acme", {"qps": 100, "ttl": 60, "state": "paused"})
        before = await etcd.in_effect()
        await etcd.put("topics", "acme", b'{"qps": -1}')
        after = Etcd()
        await after.apply(file, await etcd.export())
        assert before == await after.in_effect()
        assert (await etcd.notes())["acme"].endswith("not -1): the file has the topic in effect")

    @pytest.mark.parametrize("project", ["bad", "no name"])
    async def test_invalid_spec_without_a_topic_is_left_out_with_a_note(self, etcd, project):
        await etcd.put("topics", project, b'{"qps": "many"}')
        assert b"{}\n" == await etcd.export()
        assert (await etcd.notes())[project].endswith(", so it is not in the file")

    async def test_corrupted_topic_without_a_spec_is_left_out_with_a_note(self, etcd):
        await etcd.put("accepted", "acme", b"\xff")
        assert b"{}\n" == await etcd.export()
        assert "is not JSON: it isn't UTF-8 text" in (await etcd.notes())["acme"]
