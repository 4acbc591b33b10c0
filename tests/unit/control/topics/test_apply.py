"""A file of topics: what it would change, and what became of it."""

import asyncio
import io
import json
from typing import ClassVar

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.control.topics.manifest import STDIN, load_manifest
from evenlane.engine.control.topics.plan import PlannedTopic, counts
from evenlane.engine.errors import ConfigError, Unreachable
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Unavailable

CLUSTER_CONFIG = ClusterConfig()


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def applying(etcd):
    return ApplyPlan(etcd, "online", CLUSTER_CONFIG, "ann@host")


@pytest.fixture
def topic_client(etcd):
    return TopicClient(etcd, "online", CLUSTER_CONFIG)


def described(**topics):
    return PlannedTopic({project: json.dumps(fields).encode() for project, fields in topics.items()}, {})


async def applied(applying, **topics):
    return await applying.carry_out(await applying.plan(described(**topics)))


def summary(rows):
    return [(row.project, row.action, row.changes) for row in rows]


class TestPlan:
    async def test_new_changed_and_unchanged_by_field(self, applying, topic_client):
        await topic_client.change("a", {"qps": 1, "concurrency": 5})
        await topic_client.change("b", {"qps": 2, "backoff": {"base": 2}})
        rows = await applying.plan(
            described(a={"qps": 9, "ordered": True}, b={"backoff": {"base": 2.0}, "qps": 2.0}, c={"qps": 3})
        )
        assert [
            ("a", "changed", {"qps": (1.0, 9.0), "concurrency": (5, None), "ordered": (None, True)}),
            ("b", "unchanged", {}),
            ("c", "new", {"qps": (None, 3.0)}),
        ] == summary(rows)
        assert {"new": 1, "changed": 1, "unchanged": 1, "wrong": 0, "held": 0} == counts(rows)

    async def test_all_that_is_wrong_is_told(self, applying, tmp_path):
        """Fault rows 19 and 20: what is wrong by itself, by its name, and for this cluster."""
        (tmp_path / "t.json").write_text(
            json.dumps({"a": {"qps": -1}, "b": {"qps": 1, "spread": 1_000}, "c d": {"qps": 1}, "e": 5, "f": {"qps": 1}})
        )
        rows = await applying.plan(load_manifest(tmp_path / "t.json"))
        assert ["wrong", "wrong", "wrong", "wrong", "new"] == [row.action for row in rows]
        for row, problem in zip(
            rows, ["qps must be", "spread must be at most 128", "is not valid", "object"], strict=False
        ):
            assert problem in row.problem

    @pytest.mark.parametrize("raw", [b"", b'{"qps": NaN, "x\\n": 1}', b'{"qps": "many"}'])
    async def test_what_stands_there_may_be_anything(self, applying, etcd, raw):
        await etcd.put(names.key("online", "topics", "a"), raw)
        [row] = await applying.plan(described(a={"qps": 5}))
        assert ("changed", 5.0) == (row.action, row.changes["qps"][1])
        json.dumps(row.document(), allow_nan=False)
        assert ["a"] == (await applying.carry_out([row])).written

    async def test_a_deleted_topic_is_made_anew(self, applying, topic_client):
        await topic_client.change("a", {"qps": 5})
        await topic_client.delete("a")
        [row] = await applying.plan(described(a={"qps": 5}))
        assert ("new", "revives", "revives") == (row.action, row.effect, row.document()["effect"])
        await applying.carry_out([row])
        assert not (await topic_client.get("a")).in_effect.deleted

    @pytest.mark.parametrize("state", ["paused", "draining"])
    async def test_a_topic_that_takes_up_its_work_again_is_marked(self, applying, topic_client, state):
        """A file that names no state asks for active ones."""
        await topic_client.change("a", {"qps": 5, "state": state})
        await topic_client.change("b", {"qps": 5, "state": state})
        await topic_client.change("c", {"qps": 5})
        rows = await applying.plan(
            described(a={"qps": 5}, b={"qps": 6, "state": state}, c={"qps": 5, "state": state}, d={"qps": 5})
        )
        assert ["resumes", None, None, None] == [row.effect for row in rows]


class TestOrder:
    """Messages of a key are not passed by those that get another group."""

    @pytest.fixture
    async def drained(self, etcd, topic_client):
        """An ordered topic as it drains."""
        await topic_client.change("a", {"qps": 100, "ordered": True})
        await topic_client.change("a", {"state": "draining"})

    def looking(self, etcd, *answers):
        """Applies with a backlog that is asked for so often: a number, or an error."""
        left = list(answers)

        async def waiting(project):
            assert "a" == project
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ApplyPlan(etcd, "online", CLUSTER_CONFIG, "ann@host", waiting)

    NEW: ClassVar = {"a": {"qps": 1_000, "ordered": True}, "b": {"qps": 1}}

    @pytest.mark.usefixtures("drained")
    async def test_it_is_held_while_anything_waits_and_nothing_else_is(self, etcd, topic_client):
        applying = self.looking(etcd, 3)
        rows = await applying.plan(described(**self.NEW))
        assert [("held", "resumes"), ("new", None)] == [(row.action, row.effect) for row in rows]
        assert "topic a is ordered and 3 of its messages still wait" in rows[0].problem
        outcome = await applying.carry_out(rows)
        assert (["b"], {"a": rows[0].problem}) == (outcome.written, outcome.refused)
        assert (2, "draining") == ((now := (await topic_client.get("a")).in_effect).active, now.topic.state)

    @pytest.mark.usefixtures("drained")
    @pytest.mark.parametrize("answers", [(), (Unreachable("NATS does not answer"),)])
    async def test_it_is_held_if_nobody_can_look(self, etcd, applying, answers):
        looks = self.looking(etcd, *answers) if answers else applying
        [row] = await looks.plan(described(a=self.NEW["a"]))
        assert ("held", True) == (row.action, "known to be empty" in row.problem)

    @pytest.mark.usefixtures("drained")
    async def test_a_broker_that_is_silent_is_asked_once(self, etcd, topic_client):
        await topic_client.change("b", {"qps": 100, "ordered": True, "state": "draining"})
        looks = self.looking(etcd, Unreachable("NATS does not answer"))
        rows = await looks.plan(described(a=self.NEW["a"], b=self.NEW["a"]))
        assert ["held", "held"] == [row.action for row in rows]

    @pytest.mark.usefixtures("drained")
    async def test_it_is_written_when_nothing_waits(self, etcd, topic_client):
        assert ["a", "b"] == (await applied(self.looking(etcd, 0), **self.NEW)).written
        assert 20 == (await topic_client.get("a")).in_effect.active

    @pytest.mark.usefixtures("drained")
    async def test_what_keeps_its_groups_is_not_looked_at(self, etcd):
        assert ["a"] == (await applied(self.looking(etcd), a={"qps": 100, "ordered": True})).written

    async def test_it_is_looked_at_again_if_it_began_to_drain_after_the_plan(self, etcd, topic_client):
        """Its wish was there before, and is accepted only now."""
        await topic_client.change("a", {"qps": 100})
        applying = self.looking(etcd, 3)
        rows = await applying.plan(described(**self.NEW))
        found = await etcd.get(names.key("online", "accepted", "a"))
        ordered = found.value.replace(b'"ordered":false', b'"ordered":true')
        await etcd.put(found.key, ordered.replace(b'"state":"active"', b'"state":"draining"'))
        outcome = await applying.carry_out(rows)
        assert (["b"], ["a"]) == (outcome.written, list(outcome.refused))
        assert "3 of its messages still wait" in outcome.refused["a"]


class TestCarryingOut:
    async def test_any_number_with_their_history(self, applying, topic_client):
        outcome = await applied(applying, **{f"p{n}": {"qps": n + 1} for n in range(200)})
        assert (200, {}, [], None) == (len(outcome.written), *outcome[1:])
        assert 200 == sum(each.accepted for each in await topic_client.all())
        [entry] = (await topic_client.history("p7")).entries
        assert ("ann@host", "topics apply", (None, 8.0)) == (entry.by, entry.via, entry.changes["qps"])

    async def test_the_leader_accepts_them(self, applying, topic_client, etcd):
        controller = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, "n1")
        await controller.start()
        await asyncio.wait_for(controller.leading.wait(), 5)
        try:
            outcome = await applied(applying, **{f"p{n}": {"qps": n + 1} for n in range(200)})
            assert (200, []) == (len(outcome.written), outcome.waiting)
            assert 200 == sum(each.accepted for each in await topic_client.all())
            assert [("ann@host", "topics apply")] == [
                (each.by, each.via) for each in (await topic_client.history("p7")).entries
            ]
        finally:
            await controller.close()

    async def test_those_that_no_leader_accepts_are_told(self, etcd):
        applying = ApplyPlan(etcd, "online", CLUSTER_CONFIG, timeout_s=0.05)
        await etcd.put(names.key("online", "leader"), b"{}")
        outcome = await applied(applying, b={"qps": 1}, a={"qps": 1})
        assert (["a", "b"], ["a", "b"]) == (sorted(outcome.written), outcome.waiting)

    async def test_what_somebody_changes_meanwhile_is_left_as_it_is(self, applying, topic_client):
        """Each is written with the revision of the plan as its lock; the others in its transaction go on."""
        await topic_client.change("changed", {"qps": 1})
        await topic_client.change("gone", {"qps": 1})
        topics = {name: {"qps": 7} for name in ("changed", "gone", "made", "fine")}
        rows = await applying.plan(described(**topics))
        await topic_client.change("changed", {"qps": 2})
        await topic_client.delete("gone")
        await topic_client.change("made", {"qps": 3})
        outcome = await applying.carry_out(rows)
        assert (["fine"], {"changed", "gone", "made"}) == (outcome.written, set(outcome.refused))
        assert all("somebody has changed it since the plan was made" in why for why in outcome.refused.values())
        assert [2.0, 7.0, 1.0, 3.0] == [each.in_effect.topic.qps for each in await topic_client.all()]

    async def test_what_is_no_longer_possible_is_refused_and_the_rest_is_written(self, applying, etcd, topic_client):
        """Somebody made the topic ordered, by a wish that was there before the plan."""
        await topic_client.change("a", {"qps": 100})
        rows = await applying.plan(described(a={"qps": 1_000, "ordered": True}, b={"qps": 1}))
        ordered = await etcd.get(names.key("online", "accepted", "a"))
        await etcd.put(ordered.key, ordered.value.replace(b'"ordered":false', b'"ordered":true'))
        outcome = await applying.carry_out(rows)
        assert (["b"], ["a"]) == (outcome.written, list(outcome.refused))
        assert "qps of this ordered topic can be 300 at the most" in outcome.refused["a"]

    async def test_an_etcd_that_falls_silent_is_told_with_what_was_done(self, applying, etcd, monkeypatch):
        """Fault 11."""
        rows = await applying.plan(described(**{f"p{n}": {"qps": 1} for n in range(100)}))
        txn, calls = etcd.txn, []

        async def twice(compare, then):
            calls.extend(then[:1])
            if len(calls) > 2:
                raise Unavailable("etcd is silent")
            return await txn(compare, then)

        monkeypatch.setattr(etcd, "txn", twice)
        outcome = await applying.carry_out(rows)
        assert (60, "etcd is silent") == (len(outcome.written), outcome.broken)
        monkeypatch.setattr(etcd, "txn", txn)
        again = ApplyPlan(etcd, "online", CLUSTER_CONFIG)
        assert {"new": 40, "changed": 0, "unchanged": 60, "wrong": 0, "held": 0} == counts(
            await again.plan(described(**{f"p{n}": {"qps": 1} for n in range(100)}))
        )

    async def test_wishes_as_large_as_they_may_be_fit_into_transactions(self, applying):
        headers = {f"A-{n}": "x" * 4_000 for n in range(15)}
        topics = {f"p{n}": {"qps": 1, "push": {"url": "http://a", "headers": headers}} for n in range(30)}
        assert 30 == len((await applied(applying, **topics)).written)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("t.json", "{", "t.json is not JSON: "),
        ("t.json", "[1]", "t.json must be a JSON object"),
        ("t.json", '{"acme": {"qps": 1}, "acme": {"qps": 2}}', "acme is there twice"),
        (
            "t.json",
            "\ufeff{}",
            "t.json is not JSON: it begins with a byte order mark (BOM): save it as UTF-8 without one",
        ),
        ("t.json", "[1]", 't.json must be a JSON object such as {"acme": {"qps": 100}}, not a list'),
        ("t.toml", "\ufeff[acme]", "t.toml begins with a byte order mark (BOM): save it as UTF-8 without one"),
        ("t.toml", "[acme", "is not TOML in UTF-8"),
        ("t.toml", "a = " + "[" * 20_000, "is not TOML in UTF-8: it is nested too deeply"),
        ("t.toml", "a = " + "9" * 5_000, "is not TOML in UTF-8: a number has too many digits"),
        ("t.toml", "[acme]\nqps = 1\n[acme]\nqps = 2", "is not TOML in UTF-8"),
    ],
)
def test_a_wrong_file_is_one_sentence_that_names_it(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as error:
        load_manifest(tmp_path / name)
    assert sentence in str(error.value)


def test_a_json_list_on_stdin_is_told_what_belongs_there(monkeypatch):
    """It isn't taken for TOML, which begins with a bracket, too."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'[\n  {"project": "acme"}]')))
    with pytest.raises(ConfigError) as error:
        load_manifest(STDIN)
    assert 'stdin must be a JSON object such as {"acme": {"qps": 100}}, not ' in str(error.value)


def test_toml_on_stdin_may_begin_with_a_table(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[acme]\nqps = 1")))
    assert ["acme"] == [*load_manifest(STDIN).specs]


@pytest.mark.parametrize(
    ("name", "text", "project", "sentence"),
    [
        ("t.json", '{"acme": 5}', "acme", 'must be an object such as {"qps": 100}'),
        ("t.json", '{"a b": {"qps": 1}}', "a b", "project 'a b' is not valid"),
        ("t.json", '{"acme": {"qps": NaN}}', "acme", "qps must be a number from 0.01 to 1,000,000, not NaN"),
        ("t.toml", "[acme]\nqpss = 1", "acme", "qpss is no field of a topic"),
        ("t.toml", "[acme]\nqps = 2026-01-01", "acme", "qps must be a number"),
    ],
)
def test_what_is_wrong_with_a_topic_in_it_is_said_of_that_topic(tmp_path, name, text, project, sentence):
    (tmp_path / name).write_text(text)
    found = load_manifest(tmp_path / name)
    assert sentence in found.wrong[project]
    assert {} == found.specs


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        load_manifest(tmp_path / "none.json")
