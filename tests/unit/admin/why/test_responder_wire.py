"""Which questions a node answers, and where to (X8), on a connection that is none."""

from contextlib import asynccontextmanager

import msgspec

from evenlane.engine.admin.why.responder import WhyResponder, subject
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.stats.backlog_tally import NodeAnswer
from tests.support.node.gated import gated
from tests.support.node.world import topic
from tests.support.until import until


class Wire:
    """A connection: what was subscribed to, and what was sent."""

    def __init__(self):
        self.listening, self.sent, self.is_open, self.broken = {}, [], False, False

    async def open(self):
        self.is_open = True

    async def close(self):
        self.is_open = False

    def listen(self, subject, callback):
        self.listening[subject] = callback

    def send(self, subject, body, headers=b"", reply=""):
        if self.broken:
            raise Disconnected("gone")
        self.sent.append((subject, body))

    def ask(self, project, reply="_INBOX.x.1"):
        callback = self.listening["ask.online.why.*"]
        callback(subject("online", project).encode(), reply.encode(), b"", b"")


@asynccontextmanager
async def answering(world, **options):
    wire = Wire()
    node = await world.node(world.handle, **options)
    answering = WhyResponder(wire, "online", node, measure_s=0.0)
    await answering.open()
    yield wire, node, answering
    await answering.close()
    assert not wire.is_open


async def test_a_question_gets_an_answer():
    async with gated(acme=topic(state="paused")) as world, answering(world) as (wire, node, _):
        await world.put_many(3)
        await until(lambda: node.backlog == 3)
        assert ["ask.online.why.*", "ask.online.drop.*"] == list(wire.listening)
        wire.ask("acme")
        await until(lambda: wire.sent)
        ((to, body),) = wire.sent
        reported = msgspec.json.decode(body, type=NodeAnswer)
        assert ("_INBOX.x.1", "node", 3) == (to, reported.node, reported.parts["mid"].waiting)


async def test_what_must_not_be_answered():
    """An answer goes to inboxes alone, since a node may write where others may not; a strange name is nobody's; and
    a node that owns nothing stays silent.
    """
    async with gated() as world, answering(world) as (wire, node, each):
        wire.ask("acme", "settled.online.lanes.1")
        wire.ask("acme", "")
        wire.ask("a b")
        partitions, node.owned.partitions = node.partitions, {}
        wire.ask("acme")
        node.owned.partitions = partitions
        assert set() == each._tasks
        wire.ask("acme")
        assert 1 == len(each._tasks)
        await until(lambda: len(wire.sent) == 1)


async def test_no_more_than_some_at_once():
    """M: however many ask."""
    async with gated() as world, answering(world) as (wire, _, each):
        for _ in range(1_000):
            wire.ask("acme")
        assert 32 == len(each._tasks)
        await until(lambda: len(wire.sent) == 32 and not each._tasks)
        wire.ask("acme")
        await until(lambda: len(wire.sent) == 33)


async def test_an_answer_that_fails_ends_nothing(monkeypatch):
    async with gated() as world, answering(world) as (wire, node, each):
        wire.broken = True
        wire.ask("acme")
        await until(lambda: not each._tasks)
        wire.broken = False
        monkeypatch.setattr(node.queues, "of", lambda project: 1 / 0)
        wire.ask("acme")
        await until(lambda: not each._tasks)
        monkeypatch.undo()
        assert [] == wire.sent
        wire.ask("acme")
        await until(lambda: len(wire.sent) == 1)
