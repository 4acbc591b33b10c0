"""Apply plan: the changes that a manifest of topics would make, and their application."""

import asyncio
import json
from typing import ClassVar

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.apply import ApplyPlan
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.control.topics.manifest import load_manifest
from evenlane.engine.control.topics.plan import Manifest, counts
from evenlane.engine.errors import Unreachable
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Unavailable

CLUSTER_CONFIG = ClusterConfig()


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def apply_plan(etcd):
    return ApplyPlan(etcd, "online", CLUSTER_CONFIG, "ann@host")


@pytest.fixture
def topic_client(etcd):
    return TopicClient(etcd, "online", CLUSTER_CONFIG)


def manifest(**topics):
    return Manifest({project: json.dumps(fields).encode() for project, fields in topics.items()}, {})


async def applied(plan, **topics):
    return await plan.carry_out(await plan.plan(manifest(**topics)))


def summary(rows):
    return [(row.project, row.action, row.changes) for row in rows]


class TestPlan:
    async def test_new_changed_and_unchanged_topics_are_listed_by_field(self, apply_plan, topic_client):
        await topic_client.change("a", {"qps": 1, "concurrency": 5})
        await topic_client.change("b", {"qps": 2, "backoff": {"base": 2}})
        rows = await apply_plan.plan(
            manifest(a={"qps": 9, "ordered": True}, b={"backoff": {"base": 2.0}, "qps": 2.0}, c={"qps": 3})
        )
        assert [
            ("a", "changed", {"qps": (1.0, 9.0), "concurrency": (5, None), "ordered": (None, True)}),
            ("b", "unchanged", {}),
            ("c", "new", {"qps": (None, 3.0)}),
        ] == summary(rows)
        assert {"new": 1, "changed": 1, "unchanged": 1, "wrong": 0, "held": 0} == counts(rows)

    async def test_each_wrong_topic_has_its_problem(self, apply_plan, tmp_path):
        """Fault rows 19 and 20: an invalid value, an invalid name, and a topic beyond the cluster's limits."""
        (tmp_path / "t.json").write_text(
            json.dumps({"a": {"qps": -1}, "b": {"qps": 1, "spread": 1_000}, "c d": {"qps": 1}, "e": 5, "f": {"qps": 1}})
        )
        rows = await apply_plan.plan(load_manifest(tmp_path / "t.json"))
        assert ["wrong", "wrong", "wrong", "wrong", "new"] == [row.action for row in rows]
        for row, problem in zip(
            rows, ["qps must be", "spread must be at most 128", "is not valid", "object"], strict=False
        ):
            assert problem in row.problem

    @pytest.mark.parametrize("raw", [b"", b'{"qps": NaN, "x\\n": 1}', b'{"qps": "many"}'])
    async def test_present_spec_may_be_anything(self, apply_plan, etcd, raw):
        await etcd.put(names.key("online", "topics", "a"), raw)
        [row] = await apply_plan.plan(manifest(a={"qps": 5}))
        assert ("changed", 5.0) == (row.action, row.changes["qps"][1])
        json.dumps(row.document(), allow_nan=False)
        assert ["a"] == (await apply_plan.carry_out([row])).written

    async def test_deleted_topic_is_revived(self, apply_plan, topic_client):
        await topic_client.change("a", {"qps": 5})
        await topic_client.delete("a")
        [row] = await apply_plan.plan(manifest(a={"qps": 5}))
        assert ("new", "revives", "revives") == (row.action, row.effect, row.document()["effect"])
        await apply_plan.carry_out([row])
        assert not (await topic_client.get("a")).in_effect.deleted

    @pytest.mark.parametrize("state", ["paused", "draining"])
    async def test_resumed_topic_is_marked(self, apply_plan, topic_client, state):
        """A manifest that names no state asks for active topics."""
        await topic_client.change("a", {"qps": 5, "state": state})
        await topic_client.change("b", {"qps": 5, "state": state})
        await topic_client.change("c", {"qps": 5})
        rows = await apply_plan.plan(
            manifest(a={"qps": 5}, b={"qps": 6, "state": state}, c={"qps": 5, "state": state}, d={"qps": 5})
        )
        assert ["resumes", None, None, None] == [row.effect for row in rows]


class TestOrderedTopic:
    """Messages of a key are not overtaken by later ones in another group."""

    @pytest.fixture
    async def drained(self, etcd, topic_client):
        """Make an ordered topic that drains."""
        await topic_client.change("a", {"qps": 100, "ordered": True})
        await topic_client.change("a", {"state": "draining"})

    def plan_with(self, etcd, *backlogs):
        """Return an apply plan that reads these backlogs of topic a and no more; an error is raised."""
        left = list(backlogs)

        async def backlog(project):
            assert "a" == project
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ApplyPlan(etcd, "online", CLUSTER_CONFIG, "ann@host", backlog)

    NEW: ClassVar = {"a": {"qps": 1_000, "ordered": True}, "b": {"qps": 1}}

    @pytest.mark.usefixtures("drained")
    async def test_is_held_alone_while_messages_wait(self, etcd, topic_client):
        apply_plan = self.plan_with(etcd, 3)
        rows = await apply_plan.plan(manifest(**self.NEW))
        assert [("held", "resumes"), ("new", None)] == [(row.action, row.effect) for row in rows]
        assert "topic a is ordered and 3 of its messages still wait" in rows[0].problem
        outcome = await apply_plan.carry_out(rows)
        assert (["b"], {"a": rows[0].problem}) == (outcome.written, outcome.refused)
        assert (2, "draining") == ((now := (await topic_client.get("a")).in_effect).active, now.topic.state)

    @pytest.mark.usefixtures("drained")
    @pytest.mark.parametrize("backlogs", [(), (Unreachable("NATS does not answer"),)])
    async def test_is_held_if_its_backlog_is_unknown(self, etcd, apply_plan, backlogs):
        plan = self.plan_with(etcd, *backlogs) if backlogs else apply_plan
        [row] = await plan.plan(manifest(a=self.NEW["a"]))
        assert ("held", True) == (row.action, "known to be empty" in row.problem)

    @pytest.mark.usefixtures("drained")
    async def test_unreachable_broker_is_asked_once(self, etcd, topic_client):
        await topic_client.change("b", {"qps": 100, "ordered": True, "state": "draining"})
        plan = self.plan_with(etcd, Unreachable("NATS does not answer"))
        rows = await plan.plan(manifest(a=self.NEW["a"], b=self.NEW["a"]))
        assert ["held", "held"] == [row.action for row in rows]

    @pytest.mark.usefixtures("drained")
    async def test_is_written_without_backlog(self, etcd, topic_client):
        assert ["a", "b"] == (await applied(self.plan_with(etcd, 0), **self.NEW)).written
        assert 20 == (await topic_client.get("a")).in_effect.active

    @pytest.mark.usefixtures("drained")
    async def test_backlog_is_not_read_if_the_groups_stay(self, etcd):
        assert ["a"] == (await applied(self.plan_with(etcd), a={"qps": 100, "ordered": True})).written

    async def test_backlog_is_read_if_draining_begins_after_the_plan(self, etcd, topic_client):
        """The spec was there before, and is accepted only now."""
        await topic_client.change("a", {"qps": 100})
        apply_plan = self.plan_with(etcd, 3)
        rows = await apply_plan.plan(manifest(**self.NEW))
        found = await etcd.get(names.key("online", "accepted", "a"))
        ordered = found.value.replace(b'"ordered":false', b'"ordered":true')
        await etcd.put(found.key, ordered.replace(b'"state":"active"', b'"state":"draining"'))
        outcome = await apply_plan.carry_out(rows)
        assert (["b"], ["a"]) == (outcome.written, list(outcome.refused))
        assert "3 of its messages still wait" in outcome.refused["a"]


class TestCarryOut:
    async def test_topics_are_written_with_their_history(self, apply_plan, topic_client):
        outcome = await applied(apply_plan, **{f"p{n}": {"qps": n + 1} for n in range(200)})
        assert (200, {}, [], None) == (len(outcome.written), *outcome[1:])
        assert 200 == sum(each.is_accepted for each in await topic_client.all())
        [entry] = (await topic_client.history("p7")).entries
        assert ("ann@host", "topics apply", (None, 8.0)) == (entry.by, entry.via, entry.changes["qps"])

    async def test_leader_accepts_the_topics(self, apply_plan, topic_client, etcd):
        controller = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, "n1")
        await controller.start()
        await asyncio.wait_for(controller.leading.wait(), 30)
        try:
            outcome = await applied(apply_plan, **{f"p{n}": {"qps": n + 1} for n in range(200)})
            assert (200, []) == (len(outcome.written), outcome.waiting)
            assert 200 == sum(each.is_accepted for each in await topic_client.all())
            assert [("ann@host", "topics apply")] == [
                (each.by, each.via) for each in (await topic_client.history("p7")).entries
            ]
        finally:
            await controller.close()

    async def test_unaccepted_topics_are_reported(self, etcd):
        apply_plan = ApplyPlan(etcd, "online", CLUSTER_CONFIG, timeout_s=0.05)
        await etcd.put(names.key("online", "leader"), b"{}")
        outcome = await applied(apply_plan, b={"qps": 1}, a={"qps": 1})
        assert (["a", "b"], ["a", "b"]) == (sorted(outcome.written), outcome.waiting)

    async def test_topic_changed_since_the_plan_is_left_alone(self, apply_plan, topic_client):
        """Each write is conditional on the revision in the plan. The others of its transaction are written."""
        await topic_client.change("changed", {"qps": 1})
        await topic_client.change("gone", {"qps": 1})
        topics = {name: {"qps": 7} for name in ("changed", "gone", "made", "fine")}
        rows = await apply_plan.plan(manifest(**topics))
        await topic_client.change("changed", {"qps": 2})
        await topic_client.delete("gone")
        await topic_client.change("made", {"qps": 3})
        outcome = await apply_plan.carry_out(rows)
        assert (["fine"], {"changed", "gone", "made"}) == (outcome.written, set(outcome.refused))
        assert all("somebody has changed it since the plan was made" in why for why in outcome.refused.values())
        assert [2.0, 7.0, 1.0, 3.0] == [each.in_effect.topic.qps for each in await topic_client.all()]

    async def test_change_that_became_impossible_is_rejected_alone(self, apply_plan, etcd, topic_client):
        """The topic became ordered, by a spec from before the plan."""
        await topic_client.change("a", {"qps": 100})
        rows = await apply_plan.plan(manifest(a={"qps": 1_000, "ordered": True}, b={"qps": 1}))
        ordered = await etcd.get(names.key("online", "accepted", "a"))
        await etcd.put(ordered.key, ordered.value.replace(b'"ordered":false', b'"ordered":true'))
        outcome = await apply_plan.carry_out(rows)
        assert (["b"], ["a"]) == (outcome.written, list(outcome.refused))
        assert "qps of this ordered topic can be at most 300" in outcome.refused["a"]

    async def test_etcd_failure_is_reported_with_the_written_topics(self, apply_plan, etcd, monkeypatch):
        """Fault 11."""
        rows = await apply_plan.plan(manifest(**{f"p{n}": {"qps": 1} for n in range(100)}))
        txn, calls = etcd.txn, []

        async def twice(compare, then):
            calls.extend(then[:1])
            if len(calls) > 2:
                raise Unavailable("etcd is silent")
            return await txn(compare, then)

        monkeypatch.setattr(etcd, "txn", twice)
        outcome = await apply_plan.carry_out(rows)
        assert (60, "etcd is silent") == (len(outcome.written), outcome.broken)
        monkeypatch.setattr(etcd, "txn", txn)
        again = ApplyPlan(etcd, "online", CLUSTER_CONFIG)
        assert {"new": 40, "changed": 0, "unchanged": 60, "wrong": 0, "held": 0} == counts(
            await again.plan(manifest(**{f"p{n}": {"qps": 1} for n in range(100)}))
        )

    async def test_largest_specs_fit_into_transactions(self, apply_plan):
        headers = {f"A-{n}": "x" * 4_000 for n in range(15)}
        topics = {f"p{n}": {"qps": 1, "push": {"url": "http://a", "headers": headers}} for n in range(30)}
        assert 30 == len((await applied(apply_plan, **topics)).written)
