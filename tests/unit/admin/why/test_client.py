"""Client of `evenlane why`: owners and topics in etcd, and the nodes' answers (X8)."""

from contextlib import nullcontext

import msgspec
import pytest
from msgspec.structs import replace

from evenlane.engine.admin.session import read_accepted
from evenlane.engine.admin.why.client import ClusterView, WhyClient
from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig, agree_cluster_config
from evenlane.engine.cluster.owners import read_owners
from evenlane.engine.core.records.backlog_answer import NodeAnswer, Rates
from evenlane.engine.core.stats.backlog_tally import QueueView, Tally
from evenlane.engine.errors import ConfigError, EvenlaneError, InvalidName, UnknownProject
from evenlane.quota.topics.subscription_quota import SubscriptionQuota
from evenlane.quota.topics.topic import Topic, accept, delete, encode
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.hashing import partition_of
from evenlane.ring.membership.records import NodeRecord
from evenlane.ring.membership.records import encode as record_of

CLUSTER_CONFIG = ClusterConfig(partitions=16)
TOPIC = Topic(qps=100.0, groups=20, burst=1, weight=100.0, spread=8)
ACCEPTED = accept(TOPIC, 1, None)


def test_groups_of_unowned_partitions_are_unserved():
    """X8: `no_owner` counts the project's own groups, the draining ones included."""
    own = [partition_of("acme", group, 8, 16, "hashed") for group in range(20)]
    all_owned = dict.fromkeys(range(16), "a")
    assert 0 == ClusterView("online", CLUSTER_CONFIG, ACCEPTED, all_owned).count_unserved("acme")
    assert 20 == ClusterView("online", CLUSTER_CONFIG, ACCEPTED, {}).count_unserved("acme")
    left = {number: "a" for number in range(16) if number != own[3]}
    assert own.count(own[3]) == ClusterView("online", CLUSTER_CONFIG, ACCEPTED, left).count_unserved("acme")
    fewer = accept(Topic(qps=1.0, groups=1, burst=1, weight=1.0, spread=8), 2, ACCEPTED)
    assert own.count(own[3]) == ClusterView("online", CLUSTER_CONFIG, fewer, left).count_unserved("acme")


def test_groups_of_a_lost_topic_may_be_in_any_partition():
    """F3: `why` never reports an empty backlog for partitions without an answer."""
    assert 16 == ClusterView("online", CLUSTER_CONFIG, None, {}).count_unserved("acme")
    assert 6 == ClusterView("online", CLUSTER_CONFIG, None, dict.fromkeys(range(10), "a")).count_unserved("acme")
    assert 0 == ClusterView("online", CLUSTER_CONFIG, None, dict.fromkeys(range(16), "a")).count_unserved("acme")
    assert not ClusterView("online", CLUSTER_CONFIG, None, {}, {"a": {"blocked": "is blocked"}}).is_rolled_back
    assert ClusterView("online", CLUSTER_CONFIG, None, {}, {"a": {"topics": "misses acme"}}).is_rolled_back


def test_groups_of_partitions_that_their_owner_does_not_serve_are_unserved():
    """F3, X8: an owner's answer lists the partitions that it serves, unless the node is of an older release."""
    own = [partition_of("acme", group, 8, 16, "hashed") for group in range(20)]
    cluster = ClusterView(
        "online", CLUSTER_CONFIG, ACCEPTED, dict.fromkeys(range(8), "a") | dict.fromkeys(range(8, 16), "b")
    )
    some = {own[0], own[1]}
    unserved = sum(partition < 8 and partition not in some for partition in own)
    served = NodeAnswer("a", partitions=sorted(some))
    assert unserved == cluster.count_unserved("acme", [served])
    assert unserved == cluster.count_unserved("acme", [served, NodeAnswer("b")])
    assert 20 - sum(partition in some for partition in own if partition < 8) == (
        cluster.count_unserved("acme", [served, NodeAnswer("b", partitions=[])])
    )


async def test_invalid_owner_keys_are_skipped():
    etcd = MemoryCoordination()
    for key, value in {"0": b'{"id": "a"}', "7": b'{"id": "b"}', "x": b'{"id": "c"}', "8": b"[]", "9": b"{}"}.items():
        await etcd.put(names.key("online", "owners", key), value)
    await etcd.put(names.key("sandbox", "owners", 1), b'{"id": "d"}')
    assert {0: "a", 7: "b"} == await read_owners(etcd, "online", 128)
    assert {} == await read_owners(etcd, "other", 128)
    await etcd.close()


async def test_accepted_topic_has_the_quota_of_the_subscription():
    etcd = MemoryCoordination()
    topic = replace(ACCEPTED.topic, subscriptions={"audit": SubscriptionQuota(qps=20.0)})
    await etcd.put(names.key("online", "accepted", "acme"), encode(replace(ACCEPTED, topic=topic)))
    found = await read_accepted(etcd, "online", "acme", "audit")
    assert found is not None
    assert 20 == found.topic.qps
    await etcd.close()


async def test_unreadable_accepted_topic_is_none():
    etcd = MemoryCoordination()
    key = names.key("online", "accepted", "acme")
    assert await read_accepted(etcd, "online", "acme", None) is None
    await etcd.put(key, b"{")
    assert await read_accepted(etcd, "online", "acme", None) is None
    await etcd.put(key, encode(ACCEPTED))
    assert ACCEPTED == await read_accepted(etcd, "online", "acme", None)
    await etcd.close()


# ---- over given connections


class Line:
    """A connection on which these answers arrive at once."""

    def __init__(self, *answers):
        self.answers, self.listeners, self.asked = answers, {}, []

    def listen(self, subject, on_message):
        self.listeners[len(self.listeners) + 1] = subject, on_message
        return len(self.listeners)

    def new_inbox(self):
        return "_INBOX.test"

    def unlisten(self, sid):
        del self.listeners[sid]

    def send(self, subject, body, headers=b"", reply=""):
        self.asked.append(subject)
        for listening, on_message in list(self.listeners.values()):
            if listening == reply:
                for answer in self.answers:
                    on_message(b"", b"", b"", msgspec.json.encode(answer))


def answer(backlog=0, reason=None, node="a"):
    tally = Tally(0)
    tally.add(QueueView("mid", 0, backlog, reason=reason))
    return NodeAnswer(node, min(backlog, 1), tally.parts, tally.deepest, Rates(seconds=1.0))


@pytest.fixture
async def etcd():
    etcd = MemoryCoordination()
    await agree_cluster_config(etcd, "online", {"partitions": 16})
    for number in range(16):
        await etcd.put(names.key("online", "owners", number), b'{"id": "a"}')
    yield etcd
    await etcd.close()


async def test_client_leaves_no_subscription_behind(etcd):
    """X8."""
    await etcd.put(names.key("online", "accepted", "acme"), encode(ACCEPTED))
    line = Line(answer(7, "quota"))
    client = WhyClient(etcd, "online", lambda: nullcontext(line))
    for _ in range(2):
        assert 7 == (await client.why("acme", "mid", 60.0))["backlog"]
    assert ({}, ["ask.online.why.acme"] * 2) == (line.listeners, line.asked)


async def test_backlog_of_unserved_partitions_is_unknown(etcd):
    """F3: the owner in etcd answers, and serves none of them."""
    await etcd.put(names.key("online", "accepted", "acme"), encode(ACCEPTED))
    empty = answer()
    empty.partitions = []
    document = await WhyClient(etcd, "online", lambda: nullcontext(Line(empty))).why("acme")
    assert "not known: at least 0 wait" in document["forecast"]["sentence"]
    assert ["no_owner"] == [reason["reason"] for reason in document["priorities"][0]["reasons"]]


async def test_deleted_topic_is_explained(etcd):
    """Its backlog is kept until it is drained or dropped on purpose."""
    await etcd.put(names.key("online", "accepted", "acme"), encode(delete(ACCEPTED)))
    document = await WhyClient(etcd, "online", lambda: nullcontext(Line(answer(7, "paused")))).why("acme")
    assert ("paused", True) == (document["state"], document["deleted"])
    (reason,) = document["priorities"][1]["reasons"]
    for part in ("was deleted", "evenlane topics drain acme", "evenlane backlog purge acme"):
        assert part in reason["sentence"]
    assert document["forecast"]["resumed_sentence"].startswith("once it is drained")


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (("a.b",), InvalidName, "project 'a.b' is not valid"),
        (("acme", "urgent"), InvalidName, "priority 'urgent' is not one of this cluster's"),
        (("acme", None, 0.0), ConfigError, "within must be more than 0 seconds"),
        (("nobody",), UnknownProject, "project 'nobody' has no topic"),
    ],
)
async def test_invalid_question_raises(etcd, arguments, error, sentence):
    await etcd.put(names.key("online", "accepted", "acme"), encode(ACCEPTED))
    with pytest.raises(error, match=sentence):
        await WhyClient(etcd, "online", lambda: nullcontext(Line(answer()))).why(*arguments)


async def test_missing_or_silent_nodes_raise(etcd):
    await etcd.put(names.key("online", "accepted", "acme"), encode(ACCEPTED))
    silent = WhyClient(etcd, "online", lambda: nullcontext(Line()), timeout_s=0.01)
    with pytest.raises(EvenlaneError, match="no answer came"):
        await silent.why("acme")
    for number in range(16):
        await etcd.delete(names.key("online", "owners", number))
    with pytest.raises(EvenlaneError, match="no_owner: no node is running"):
        await silent.why("acme")
    with pytest.raises(UnknownProject) as unknown:
        await silent.why("other")
    assert (
        "project 'other' has no topic in environment 'online', and no node is running there, so its"
        " backlog isn't known: `evenlane topics set other --qps 100 --env online` creates one; if etcd has lost it,"
        " `evenlane topics apply FILE --env online` restores it"
    ) == str(unknown.value)


async def test_unknown_project_names_the_silent_nodes(etcd):
    """F3: they may have messages of it."""
    client = WhyClient(etcd, "online", lambda: nullcontext(Line(answer())), timeout_s=0.01)
    makes = "`evenlane topics set nobody --qps 100 --env online` creates one"
    with pytest.raises(UnknownProject, match=f", and no node has any of its messages: {makes}"):
        await client.why("nobody")
    await etcd.put(names.key("online", "owners", 7), b'{"id": "b"}')
    with pytest.raises(
        UnknownProject, match=f"that answered have none of its messages; no answer came from b: {makes}"
    ):
        await client.why("nobody")


# ---- topics that etcd has lost


async def troubled(etcd, *nodes, kind="topics"):
    for node in nodes:
        record = NodeRecord(troubles={kind: "misses 2 topics in etcd"})
        await etcd.put(names.key("online", "nodes", node), record_of(record))


LOST = (
    "etcd has lost the project's topic, which stays in effect on {}: `evenlane topics apply FILE --env online` restores"
)


@pytest.mark.parametrize("is_in_etcd", [True, False], ids=["trouble", "before the trouble is in etcd"])
async def test_lost_topic_is_explained_with_the_quota_in_effect(etcd, is_in_etcd):
    """F2, X8: in one note, without `topics set`, which would lose the other fields."""
    await etcd.put(names.key("online", "owners", 7), b'{"id": "b"}')
    if is_in_etcd:
        await troubled(etcd, "a", "b")
    both = [answer(7, "quota", node=node) for node in "ab"]
    for each in both:
        each.lost = TOPIC
    document = await WhyClient(etcd, "online", lambda: nullcontext(Line(*both))).why("acme", within=0.001)
    assert ("active", False, TOPIC.qps) == (document["state"], document["deleted"], document["rates"]["quota"])
    assert "a quota of 100/s" in document["rates"]["sentence"]
    (note,) = document["notes"]
    assert note.startswith(LOST.format("a, b"))
    assert "topics set" not in str(document)


async def test_lost_topic_without_a_backlog_is_no_unknown_project(etcd):
    empty = answer()
    empty.lost = TOPIC
    document = await WhyClient(etcd, "online", lambda: nullcontext(Line(empty))).why("acme")
    assert LOST.format("a") in document["notes"][0]


async def test_node_that_does_not_know_a_lost_topic_is_named(etcd):
    """F2: it has joined since, so the topic isn't in effect there."""
    await etcd.put(names.key("online", "owners", 7), b'{"id": "b"}')
    await troubled(etcd, "a", "b")
    knows, new = answer(7, "quota"), answer(3, "paused", node="b")
    knows.lost = TOPIC
    document = await WhyClient(etcd, "online", lambda: nullcontext(Line(knows, new))).why("acme")
    sentences = {each["reason"]: each["sentence"] for each in document["priorities"][1]["reasons"]}
    assert "a node on which it waits doesn't know its topic, as etcd has lost topics" == sentences["paused"]
    assert "node b misses 2 topics in etcd" == document["notes"][0]
    assert document["notes"][1].startswith(LOST.format("a"))


async def test_quota_of_a_topic_that_may_be_lost_is_unknown(etcd):
    """F2: topics are lost, and no node that answers knows this one."""
    await troubled(etcd, "a")
    document = await WhyClient(etcd, "online", lambda: nullcontext(Line(answer(7, "paused")))).why("acme", within=60.0)
    assert None is document["rates"]["quota"]
    assert "its quota isn't known" in document["rates"]["sentence"]
    assert (
        "etcd has no topic for the project, and has lost topics: if the project's is one of them"
        in document["notes"][-1]
    )
    assert "topics set" not in str(document)
    assert "no quota" not in str(document)
