"""The leader asks and acts (E3), on etcd in memory and a wire between it and nodes that answer as they are told."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.group_collector import GroupCollector
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.wire.group_gc_messages import GroupReply, GroupRequest, subject
from evenlane.engine.node.services.group_responder import GroupResponder
from evenlane.quota.topics.topic import accept, complete, delete, encode, parse_spec
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import OwnerRecord
from evenlane.ring.membership.records import encode as encoded
from tests.support.node.world import World, topic
from tests.support.until import until

PARTITIONS = 2


class Wire:
    """All subjects; `down` while there is no connection."""

    def __init__(self):
        self.listeners, self.sent, self.down, self.opened = {}, [], False, 0

    async def open(self):
        self.opened += 1

    async def close(self):
        pass

    def listen(self, subject, callback):
        self.listeners[subject] = callback

    def send(self, subject, body):
        if self.down:
            raise Disconnected("gone")
        self.sent.append((subject, body))
        if (on_message := self.listeners.get(subject)) is not None:
            asyncio.get_running_loop().call_soon(on_message, subject.encode(), b"", b"", body)


class Nodes:
    """Who own everything; `full` is what they hold, `silent` who don't answer."""

    def __init__(self, wire, owners):
        self.wire, self.owners, self.full, self.silent, self.asks = wire, owners, [], set(), []
        wire.listen(subject("online"), self._asked)

    def _asked(self, _subject, _reply, _headers, body):
        ask = msgspec.json.decode(body, type=GroupRequest)
        self.asks.append(ask)
        for node in set(self.owners.values()) - self.silent:
            epochs = {p: self.epochs[p] for p, owner in self.owners.items() if owner == node}
            reported = GroupReply(ask.number, node, epochs, {each.project: self.full for each in ask.wanted})
            self.wire.send(ask.reply, msgspec.json.encode(reported))


def fields(groups):
    return complete(parse_spec(b'{"qps": 100, "groups": %d}' % groups), ClusterConfig())


LOWERED = accept(fields(2), 2, accept(fields(4), 1, None))


@pytest.fixture
async def leading():
    """A leader's duty, two nodes that own a partition each, and what it said to be empty."""
    etcd = MemoryCoordination()
    wire, gone = Wire(), []
    nodes = Nodes(wire, {0: "a", 1: "b"})
    for number, node in nodes.owners.items():
        await etcd.put(names.key("online", "owners", number), encoded(OwnerRecord(id=node, epoch=0)))
    items = (await etcd.list(names.key("online", "owners", ""))).items
    nodes.epochs = {number: items[number].create_revision for number in nodes.owners}
    nodes.topic_cache = topic_cache = TopicCache(etcd, "online")

    async def remove_groups(project, groups, number):
        gone.append((project, groups, number))
        await etcd.delete(names.key("online", "accepted", project))
        return True

    duty = GroupCollector(
        etcd, "online", PARTITIONS, topic_cache, lambda: wire, remove_groups, 0.05, every_s=0.01, answer_s=0.05
    )
    await topic_cache.start()
    serving = asyncio.create_task(duty.serve(None))
    try:
        yield etcd, nodes, gone
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await topic_cache.close()


async def lower(etcd, accepted=LOWERED, project="acme"):
    await etcd.put(names.key("online", "accepted", project), encode(accepted))


async def test_nothing_is_asked_about_what_does_not_drain(leading):
    etcd, nodes, gone = leading
    await lower(etcd, accept(fields(4), 1, None))
    await until(lambda: nodes.topic_cache.get("acme"))
    assert 0 == nodes.wire.opened
    await lower(etcd, project="other")
    await until(lambda: gone)
    assert {"other"} == {each.project for ask in nodes.asks for each in ask.wanted}


async def test_groups_that_are_empty_go(leading):
    etcd, nodes, gone = leading
    await lower(etcd)
    await until(lambda: gone)
    assert [("acme", (2, 3), 1)] == gone
    assert [False, True, True] == [ask.deep for ask in nodes.asks]


async def test_a_deleted_topic_goes(leading):
    etcd, _, gone = leading
    await lower(etcd, delete(LOWERED))
    await until(lambda: gone)
    assert [("acme", (0, 1, 2, 3), 2)] == gone


async def test_what_holds_something_stays(leading):
    etcd, nodes, gone = leading
    nodes.full = [3]
    await lower(etcd)
    await until(lambda: gone)
    assert [("acme", (2,), 1)] == gone


@pytest.mark.parametrize("how", ["silent", "no owner", "another epoch", "nats is gone"])
async def test_no_answer_is_not_empty(leading, how, monkeypatch):
    etcd, nodes, gone = leading
    looks, look = [], etcd.list
    monkeypatch.setattr(etcd, "list", lambda prefix: looks.append(prefix) or look(prefix))
    if how == "silent":
        nodes.silent = {"b"}
    elif how == "no owner":
        await etcd.delete(names.key("online", "owners", 1))
    elif how == "another epoch":
        nodes.epochs = {**nodes.epochs, 1: 1_000}
    else:
        nodes.wire.down = True
    await lower(etcd)
    await until(lambda: len(looks) > 3, what="owners to be looked up for some questions")
    assert [] == gone
    nodes.silent, nodes.wire.down = set(), False
    await etcd.put(names.key("online", "owners", 1), encoded(OwnerRecord(id="b", epoch=0)))
    item = await etcd.get(names.key("online", "owners", 1))
    nodes.epochs = {**nodes.epochs, 1: item.create_revision}
    await until(lambda: gone)


QUESTION = b'{"number": 7, "reply": "_INBOX.a", "wanted": [{"project": "acme", "groups": [1, 2]}]}'


@asynccontextmanager
async def answering(world):
    wire = Wire()
    node = await world.node()
    answers = GroupResponder(wire, "online", node)
    answers.listen()
    try:
        yield wire, node
    finally:
        await answers.close()


async def test_a_node_answers():
    async with World(acme=topic(groups=2, state="paused")) as world, answering(world) as (wire, node):
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
async def test_a_node_writes_to_inboxes_only(question):
    """Fault 20: whoever may ask must not have a node write to any subject."""
    async with World() as world, answering(world) as (wire, _):
        wire.send(subject("online"), question)
        wire.send(subject("online"), QUESTION)
        await until(lambda: len(wire.sent) > 2)
        assert [subject("online")] * 2 + ["_INBOX.a"] == [to for to, _ in wire.sent]
