"""Topics from a program, on a real etcd."""

import pytest

from evenlane import (
    ConfigError,
    EvenlaneError,
    InvalidTopic,
    RevisionConflict,
    SyncTopics,
    Topics,
    UnknownProject,
    Unreachable,
)
from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.producer.producer import Producer

pytestmark = pytest.mark.real


@pytest.fixture
def settings(nats_server, etcd_server, env) -> Settings:
    return Settings(nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=16)


@pytest.fixture
async def topics(settings):
    async with Topics(settings=settings, by="ann") as opened:
        yield opened


async def test_set_creates_a_topic_and_changes_only_the_given_fields(topics):
    made = await topics.set("acme", qps=100, ttl=60, backoff={"base": 2})
    assert (made.project, made.qps, made.state, made.is_accepted) == ("acme", 100, "active", True)
    changed = await topics.set("acme", concurrency=20, ttl=None)
    assert changed.revision > made.revision
    assert changed.document()["wish"] == {"qps": 100, "backoff": made.document()["wish"]["backoff"], "concurrency": 20}
    assert await topics.get("acme") == changed
    assert [each.project for each in await topics.list()] == ["acme"]


async def test_states(topics):
    await topics.set("acme", qps=100)
    states = [(await change("acme")).state for change in (topics.pause, topics.resume, topics.drain, topics.delete)]
    assert states == ["paused", "active", "draining", "deleted"]


async def test_wrong_fields_are_refused_in_one_sentence(topics):
    with pytest.raises(InvalidTopic, match=r"topic acme: qps must be a number from 0.01"):
        await topics.set("acme", qps=0)
    with pytest.raises(InvalidTopic, match="topic acme: qbs is not a field of a topic"):
        await topics.set("acme", qps=1, qbs=1)
    with pytest.raises(InvalidTopic, match="nothing to set: name at least one field, such as qps=100"):
        await topics.set("acme")
    with pytest.raises(UnknownProject, match="project 'acme' has no topic"):
        await topics.pause("acme")
    assert await topics.list() == []


async def test_change_with_an_old_revision_changes_nothing(topics):
    first = await topics.set("acme", qps=100, if_revision=0)
    await topics.set("acme", qps=200, if_revision=first.revision, by="bob")
    with pytest.raises(RevisionConflict, match=r"is no longer at revision .* by bob"):
        await topics.set("acme", qps=300, if_revision=first.revision)
    assert (await topics.get("acme")).qps == 200


@pytest.mark.parametrize("revision", ["7", -1, True, 1.0])
async def test_revision_must_be_a_number(topics, revision):
    for change in (topics.pause, topics.delete, lambda *given, **more: topics.set(*given, qps=1, **more)):
        with pytest.raises(ConfigError, match=r"if_revision must be the revision of a topic's status, or 0 for none"):
            await change("acme", if_revision=revision)


@pytest.mark.parametrize("file", ["-", "no\0file", "missing.toml"])
async def test_file_that_cannot_be_read(topics, file):
    """A program has no topics on its stdin: `-` is a file there."""
    with pytest.raises(ConfigError, match="can't be read"):
        await topics.apply(file)


async def test_apply_writes_what_differs(topics, tmp_path):
    await topics.set("same", qps=1)
    wanted = {"same": {"qps": 1}, "acme": {"qps": 100}}
    planned = await topics.apply(wanted, dry_run=True)
    assert (planned.new, planned.unchanged, planned.written) == (("acme",), ("same",), ())
    assert (await topics.apply(wanted)).written == ("acme",)
    file = tmp_path / "topics.toml"
    file.write_text("[acme]\nqps = 200\n")
    assert (await topics.apply(file)).changed == ("acme",)
    assert (await topics.get("acme")).qps == 200
    with pytest.raises(InvalidTopic, match=r"1 topic is wrong: acme: qps is missing.*: nothing was written"):
        await topics.apply({"acme": {}, "other": {"qps": 1}})
    with pytest.raises(ConfigError, match="topics must be a mapping such as"):
        await topics.apply([("acme", 1)])


async def test_ordered_topic_with_a_backlog_keeps_its_groups(topics, settings):
    await topics.set("acme", qps=100, groups=2, ordered=True)
    async with Producer(settings=settings) as producer:
        await producer.put("acme", b"1", key="k")
    await topics.drain("acme")
    with pytest.raises(EvenlaneError, match="ordered and 1 of its messages still wait"):
        await topics.set("acme", groups=3, state="active")
    with pytest.raises(EvenlaneError, match="ordered and 1 of its messages still wait"):
        await topics.apply({"acme": {"qps": 100, "groups": 3, "ordered": True}})
    with pytest.raises(EvenlaneError, match="1 topic is held: acme: topic acme is ordered"):
        await topics.apply({"acme": {"qps": 100, "groups": 3, "ordered": True}}, dry_run=True)


async def test_author_is_in_the_history(topics, settings):
    await topics.set("acme", qps=100)
    etcd = connections.etcd(settings)
    try:
        found = await etcd.get(names.key(settings.env, "authors", "acme"))
    finally:
        await etcd.close()
    assert b'"by":"ann","via":"Topics.set"' in found.value.replace(b" ", b"")


async def test_unreachable_and_not_open():
    async with Topics(etcd="127.0.0.1:1") as topics:
        with pytest.raises(Unreachable, match=r"etcd at 127.0.0.1:1 does not answer"):
            await topics.list()
    with pytest.raises(ConfigError, match="these topics are not open"):
        await topics.list()
    with pytest.raises(ConfigError, match="by must have 1 to"):
        Topics(by="")
    with pytest.raises(ConfigError, match=r"settings must be an evenlane.Settings, not str"):
        Topics(settings="prod")


def test_sync_topics(settings):
    with SyncTopics(settings=settings) as topics:
        assert topics.set("acme", qps=100).is_accepted
        assert topics.pause("acme").state == "paused"
        assert topics.get("acme").state == topics.list()[0].state == "paused"
        assert topics.apply({"acme": {"qps": 100}}).changed == ("acme",)
    with pytest.raises(UnknownProject):
        SyncTopics(settings=settings).drain("nobody")
