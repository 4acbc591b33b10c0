"""The leader's group collector and the nodes' responder (E3), on etcd in memory and a wire in memory."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.group_collector import GroupCollector
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.records.group_gc_messages import GroupReply, GroupRequest, subject
from evenlane.engine.node.services.group_responder import GroupResponder
from evenlane.quota.topics.topic import accept, complete, delete, encode, parse_spec
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import OwnerRecord
from evenlane.ring.membership.records import encode as encoded
from tests.support.node.world import World, topic
from tests.support.until import until

PARTITIONS = 2


class Etcd(MemoryCoordination):
    """Counts its listings."""

    def __init__(self):
        super().__init__()
        self.listings = 0

    async def list(self, prefix):
        self.listings += 1
        return await super().list(prefix)


class Wire:
    """All subjects; `down` while there is no connection."""

    def __init__(self):
        self.listeners, self.sent, self.down, self.opened = {}, [], False, 0

    async def open(self):
        self.opened += 1

    async def close(self):
        pass

    def new_inbox(self):
        return f"_INBOX.{self.opened}"

    def listen(self, subject, callback):
        self.listeners[subject] = callback

    def send(self, subject, body):
        if self.down:
            raise Disconnected("gone")
        self.sent.append((subject, body))
        if (on_message := self.listeners.get(subject)) is not None:
            asyncio.get_running_loop().call_soon(on_message, subject.encode(), b"", b"", body)


class Nodes:
    """The owners of all partitions. `full` has the groups with messages; nodes in `silent` don't answer."""

    def __init__(self, wire, owners):
        self.wire, self.owners, self.full, self.silent, self.asked = wire, owners, [], set(), []
        wire.listen(subject("online"), self._on_request)

    def _on_request(self, _subject, _reply, _headers, body):
        request = msgspec.json.decode(body, type=GroupRequest)
        self.asked.append(request)
        for node in set(self.owners.values()) - self.silent:
            epochs = {p: self.epochs[p] for p, owner in self.owners.items() if owner == node}
            reply = GroupReply(request.number, node, epochs, {each.project: self.full for each in request.wanted})
            self.wire.send(request.reply, msgspec.json.encode(reply))


def fields(groups):
    return complete(parse_spec(b'{"qps": 100, "groups": %d}' % groups), ClusterConfig())


LOWERED = accept(fields(2), 2, accept(fields(4), 1, None))


@pytest.fixture
async def leader():
    """Serves as leader: etcd, two nodes with a partition each, and the groups that were removed."""
    etcd = Etcd()
    wire, removed = Wire(), []
    nodes = Nodes(wire, {0: "a", 1: "b"})
    for number, node in nodes.owners.items():
        await etcd.put(names.key("online", "owners", number), encoded(OwnerRecord(id=node, epoch=0)))
    items = (await etcd.list(names.key("online", "owners", ""))).items
    nodes.epochs = {number: items[number].create_revision for number in nodes.owners}
    nodes.topic_cache = topic_cache = TopicCache(etcd, "online")

    async def remove_groups(project, groups, number):
        removed.append((project, groups, number))
        await etcd.delete(names.key("online", "accepted", project))
        return True

    collector = GroupCollector(
        etcd, "online", PARTITIONS, topic_cache, lambda: wire, remove_groups, 0.05, every_s=0.01, answer_s=0.05
    )
    await topic_cache.start()
    serving = asyncio.create_task(collector.serve(None))
    try:
        yield etcd, nodes, removed
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await topic_cache.close()


async def lower(etcd, accepted=LOWERED, project="acme"):
    await etcd.put(names.key("online", "accepted", project), encode(accepted))


async def test_open_topic_causes_no_question(leader):
    etcd, nodes, removed = leader
    await lower(etcd, accept(fields(4), 1, None))
    await until(lambda: nodes.topic_cache.get("acme"))
    assert 0 == nodes.wire.opened
    await lower(etcd, project="other")
    await until(lambda: removed)
    assert {"other"} == {each.project for request in nodes.asked for each in request.wanted}


async def test_empty_groups_are_removed(leader):
    etcd, nodes, removed = leader
    await lower(etcd)
    await until(lambda: removed)
    assert [("acme", (2, 3), 1)] == removed
    assert [False, True, True] == [request.deep for request in nodes.asked]


async def test_empty_deleted_topic_is_removed(leader):
    etcd, _, removed = leader
    await lower(etcd, delete(LOWERED))
    await until(lambda: removed)
    assert [("acme", (0, 1, 2, 3), 2)] == removed


async def test_full_group_stays(leader):
    etcd, nodes, removed = leader
    nodes.full = [3]
    await lower(etcd)
    await until(lambda: removed)
    assert [("acme", (2,), 1)] == removed


@pytest.mark.parametrize("how", ["silent", "no owner", "another epoch", "nats is gone"])
async def test_missing_answer_removes_nothing(leader, how):
    etcd, nodes, removed = leader
    if how == "silent":
        nodes.silent = {"b"}
    elif how == "no owner":
        await etcd.delete(names.key("online", "owners", 1))
    elif how == "another epoch":
        nodes.epochs = {**nodes.epochs, 1: 1_000}
    else:
        nodes.wire.down = True
    before = etcd.listings
    await lower(etcd)
    await until(lambda: etcd.listings > before + 3, what="owners to be looked up for some questions")
    assert [] == removed
    nodes.silent, nodes.wire.down = set(), False
    await etcd.put(names.key("online", "owners", 1), encoded(OwnerRecord(id="b", epoch=0)))
    item = await etcd.get(names.key("online", "owners", 1))
    nodes.epochs = {**nodes.epochs, 1: item.create_revision}
    await until(lambda: removed)


QUESTION = b'{"number": 7, "reply": "_INBOX.a", "wanted": [{"project": "acme", "groups": [1, 2]}]}'


@asynccontextmanager
async def responder(world):
    wire = Wire()
    node = await world.node()
    answers = GroupResponder(wire, "online", node)
    answers.listen()
    try:
        yield wire, node
    finally:
        await answers.close()


async def test_node_reports_full_groups():
    async with World(acme=topic(groups=2, state="paused")) as world, responder(world) as (wire, node):
        await world.put(group=1)
        await until(lambda: node.backlog)
        wire.send(subject("online"), QUESTION)
        await until(lambda: len(wire.sent) > 1)
        to, body = wire.sent[1]
        assert ("_INBOX.a", GroupReply(7, "node", {0: 1, 1: 1}, {"acme": [1]})) == (
            to,
            msgspec.json.decode(body, type=GroupReply),
        )


@pytest.mark.parametrize(
    "question", [b"", b"nonsense", b'{"number": 1, "reply": "lanes.online.0.a.0.mid", "wanted": []}',
                 b'{"number": 1, "reply": "_INBOX.a\\r\\nPUB x 0", "wanted": []}'],
)  # fmt: skip
async def test_node_answers_to_inboxes_only(question):
    """Fault 20: a request can't make a node write to an arbitrary subject."""
    async with World() as world, responder(world) as (wire, _):
        wire.send(subject("online"), question)
        wire.send(subject("online"), QUESTION)
        await until(lambda: len(wire.sent) > 2)
        assert [subject("online")] * 2 + ["_INBOX.a"] == [to for to, _ in wire.sent]
