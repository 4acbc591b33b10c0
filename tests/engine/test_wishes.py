"""Wishes: written, and in force with a leader or without one."""

import asyncio
import json

import pytest

from engine import names
from engine.acceptor import Acceptor
from engine.errors import ConfigError, InvalidName, InvalidTopic, UnknownProject
from engine.facts import Facts
from engine.topics import TopicBook
from engine.wish_file import read
from engine.wishes import Wishes, known_facts
from ring.memory import MemoryCoordination

FACTS = Facts()


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def wishes(etcd):
    return Wishes(etcd, "online", FACTS)


async def in_force(etcd, project):
    book = TopicBook(etcd, "online")
    await book.start()
    await book.close()
    return book.get(project)


async def test_before_any_node_runs_a_wish_is_in_force_at_once(etcd, wishes):
    standing = await wishes.change("acme", {"qps": 100})
    assert (True, None) == (standing.accepted, standing.problem)
    accepted = await in_force(etcd, "acme")
    assert (100.0, 2, 100.0, (), "active") == (
        accepted.topic.qps, accepted.active, accepted.topic.weight, accepted.draining, accepted.topic.state,
    )  # fmt: skip


async def test_only_what_is_named_changes_and_none_means_the_default_again(etcd, wishes):
    await wishes.change("acme", {"qps": 100, "concurrency": 5, "backoff": {"base": 3.0}})
    await wishes.change("acme", {"weight": 7, "backoff": {"cap": 60.0}})
    standing = await wishes.change("acme", {"concurrency": None})
    topic = standing.in_force.topic
    assert (100.0, 7.0, None, 3.0, 60.0) == (
        topic.qps, topic.weight, topic.concurrency, topic.backoff.base, topic.backoff.cap,
    )  # fmt: skip
    assert {"qps", "weight", "backoff"} == set(standing.wish)


async def test_groups_that_are_taken_away_drain(etcd, wishes):
    """K6: also where nobody leads yet, no group is forgotten."""
    await wishes.change("acme", {"qps": 200})
    standing = await wishes.change("acme", {"qps": 100})
    assert (2, (2, 3)) == (standing.in_force.active, standing.in_force.draining)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "topic acme: qps is missing: a topic needs its messages per second"),
        ({"qps": -1}, "topic acme: qps must be a number from 0.01 to 1,000,000, not -1"),
        ({"qps": 100, "qsp": 1}, "topic acme: qsp is no field of a topic"),
        ({"qps": 1_000, "groups": 2}, "topic acme: groups must be at least 7 for 1,000 QPS"),
        ({"qps": 1, "spread": 1_000}, "topic acme: spread must be at most 128"),
    ],
)
async def test_a_wrong_wish_names_field_and_reason_and_is_not_written(etcd, wishes, changes, sentence):
    with pytest.raises(InvalidTopic) as error:
        await wishes.change("acme", changes)
    assert str(error.value).startswith(sentence)
    assert None is await etcd.get(names.key("online", "topics", "acme"))


async def test_with_a_leader_the_leader_accepts_and_is_waited_for(etcd, wishes):
    acceptor = Acceptor(etcd.peer(), "online", FACTS, "n1")
    await acceptor.start()
    await asyncio.wait_for(acceptor.leading.wait(), 5)
    try:
        standing = await wishes.change("acme", {"qps": 100})
        wish = await etcd.get(names.key("online", "topics", "acme"))
        assert (True, wish.mod_revision) == (standing.accepted, standing.in_force.revision)
        standing = await wishes.delete("acme")
        assert (True, "draining") == (standing.accepted, standing.in_force.topic.state)
    finally:
        await acceptor.close()


async def test_a_leader_that_comes_later_takes_over_what_was_accepted_without_it(etcd, wishes):
    await wishes.change("acme", {"qps": 200})
    await wishes.change("acme", {"qps": 100})
    before = await in_force(etcd, "acme")
    acceptor = Acceptor(etcd.peer(), "online", FACTS, "n1")
    await acceptor.start()
    try:
        await asyncio.wait_for(acceptor.leading.wait(), 5)
        standing = await wishes.change("other", {"qps": 1})
        after = await in_force(etcd, "acme")
        assert (True, before.topic, before.active, before.draining) == (
            standing.accepted, after.topic, after.active, after.draining,
        )  # fmt: skip
    finally:
        await acceptor.close()


async def test_a_leader_that_is_silent_is_waited_for_2_s_and_nothing_is_accepted_over_its_head(
    etcd, wishes, monkeypatch
):
    monkeypatch.setattr("engine.wishes.WAIT_S", 0.05)
    await etcd.put(names.key("online", "leader"), b"{}")
    standing = await wishes.change("acme", {"qps": 100})
    assert (False, None, None) == (standing.accepted, standing.problem, standing.in_force)
    assert None is await in_force(etcd, "acme")
    [listed] = await wishes.all()
    assert not listed.accepted


async def test_who_changes_the_same_topic_at_the_same_time_loses_nothing(etcd, wishes):
    await wishes.change("acme", {"qps": 100})
    fields = {"weight": 3, "burst": 4, "max_attempts": 6, "concurrency": 9, "ttl": 60}
    await asyncio.gather(*(wishes.change("acme", {field: value}) for field, value in fields.items()))
    assert {"qps": 100.0, **fields} == json.loads((await etcd.get("/evenlane/online/topics/acme")).value)
    assert (await wishes.get("acme")).accepted


async def test_a_deleted_topic_drains_and_is_listed_so_and_can_be_made_again(etcd, wishes):
    await wishes.change("acme", {"qps": 200})
    standing = await wishes.delete("acme")
    assert (None, "draining", True) == (standing.wish, standing.in_force.topic.state, standing.accepted)
    with pytest.raises(UnknownProject):
        await wishes.delete("acme")
    with pytest.raises(UnknownProject):
        await wishes.change("acme", {"state": "paused"}, known=True)
    assert (await wishes.change("acme", {"qps": 50})).in_force.draining == (1, 2, 3)


async def test_what_somebody_wrote_by_hand_is_shown_with_what_is_wrong_and_can_be_mended(etcd, wishes):
    await etcd.put(names.key("online", "topics", "acme"), b'{"qps": "many"}')
    [standing] = await wishes.all()
    assert (False, 'qps must be a number from 0.01 to 1,000,000, not "many"') == (
        standing.accepted, standing.problem,
    )  # fmt: skip
    assert (await wishes.change("acme", {"qps": 5})).accepted


async def test_names_are_checked_and_an_unknown_project_is_told(wishes):
    with pytest.raises(InvalidName):
        await wishes.change("a/b", {"qps": 1})
    with pytest.raises(InvalidName):
        await wishes.get("")
    with pytest.raises(UnknownProject, match="`evenlane topics set nobody --qps 100 --env online` makes one"):
        await wishes.get("nobody")


async def test_a_file_of_any_length_is_written_as_a_whole_or_not_at_all(etcd, wishes, tmp_path):
    path = tmp_path / "topics.json"
    described = {f"p{number}": {"qps": number + 1} for number in range(200)}
    path.write_text(json.dumps(described))
    assert 200 == sum(standing.accepted for standing in await wishes.replace(read(path)))
    described["p7"]["spread"] = 1_000
    described["p8"]["qps"] = 999
    path.write_text(json.dumps(described))
    with pytest.raises(InvalidTopic, match="topic p7: spread must be at most 128"):
        await wishes.replace(read(path))
    assert 9.0 == (await wishes.get("p8")).in_force.topic.qps


@pytest.mark.parametrize(
    ("name", "text", "kind", "sentence"),
    [
        ("t.json", "{", ConfigError, "t.json is not JSON: "),
        ("t.json", "[1]", ConfigError, "t.json must be a JSON object"),
        ("t.json", '{"acme": 5}', InvalidTopic, 'must be an object such as {"qps": 100}'),
        ("t.json", '{"acme": {"qps": 1}, "acme": {"qps": 2}}', ConfigError, "acme is there twice"),
        ("t.json", '{"a b": {"qps": 1}}', InvalidName, "project 'a b' is not valid"),
        ("t.json", '{"acme": {"qps": NaN}}', InvalidTopic, "qps must be a number from 0.01 to 1,000,000, not NaN"),
        ("t.toml", "[acme", ConfigError, "is not TOML in UTF-8"),
        ("t.toml", "[acme]\nqpss = 1", InvalidTopic, "qpss is no field of a topic"),
    ],
)
def test_a_wrong_file_is_one_sentence_that_names_it(tmp_path, name, text, kind, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(kind) as error:
        read(tmp_path / name)
    assert sentence in str(error.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        read(tmp_path / "none.json")


async def test_to_look_makes_no_environment(etcd):
    assert Facts() == await known_facts(etcd, "online")
    assert None is await etcd.get(names.key("online", "settings"))
