"""Questions that a node answers, and subjects that it answers to (X8), on a fake connection."""

from contextlib import asynccontextmanager

import msgspec

from evenlane.engine.admin.why.responder import WhyResponder
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.records.backlog_answer import NodeAnswer
from evenlane.engine.core.records.why_request import WhyRequest, encode, subject
from tests.support.node.gated import gated
from tests.support.node.world import topic, turns
from tests.support.until import until


class Wire:
    """A connection that keeps subscriptions and what was sent. While it is `broken`, sending fails."""

    def __init__(self):
        self.listening, self.sent, self.is_open, self.broken, self.failed = {}, [], False, False, 0

    async def open(self):
        self.is_open = True

    async def close(self):
        self.is_open = False

    def listen(self, subject, callback):
        self.listening[subject] = callback

    def send(self, subject, body, headers=b"", reply=""):
        if self.broken:
            self.failed += 1
            raise Disconnected("gone")
        self.sent.append((subject, body))

    def ask(self, project, reply="_INBOX.x.1", body=b""):
        callback = self.listening["ask.online.why.*"]
        callback(subject("online", project).encode(), reply.encode(), b"", body)


@asynccontextmanager
async def responder(world, lost=lambda _project: None):
    wire = Wire()
    node = await world.node(world.handle)
    made = WhyResponder(wire, "online", node, lost=lost, measure_s=0.0)
    await made.open()
    yield wire, node
    await made.close()
    assert not wire.is_open


async def test_question_gets_an_answer():
    async with gated(acme=topic(state="paused")) as world, responder(world) as (wire, node):
        await world.put_many(3)
        await until(lambda: node.backlog == 3)
        assert ["ask.online.why.*", "ask.online.drop.*"] == list(wire.listening)
        wire.ask("acme")
        await until(lambda: wire.sent)
        ((to, body),) = wire.sent
        answer = msgspec.json.decode(body, type=NodeAnswer)
        assert ("_INBOX.x.1", "node", 3) == (to, answer.node, answer.parts["mid"].waiting)


async def test_positions_are_only_in_the_answer_if_asked_for():
    """E11: a plain question costs what it always did; one that can't be read is a plain one."""
    async with gated(acme=topic(state="paused", groups=1)) as world, responder(world) as (wire, node):
        await world.put_many(3)
        await until(lambda: node.backlog == 3)
        for body in (b"", b"junk", encode(WhyRequest(positions=True)), encode(WhyRequest(True, "low"))):
            wire.ask("acme", body=body)
            await until(lambda: wire.sent)
            _, answer = wire.sent.pop()
            got = msgspec.json.decode(answer, type=NodeAnswer).progress
            is_listed = body == encode(WhyRequest(positions=True))
            assert [(0, 1, 1, 3)] * is_listed == [(each.settled, each.head, each.next, each.end) for each in got]


async def test_questions_that_are_not_answered():
    """A node answers to inboxes only, as it may write where others may not. An invalid name has no answer, and a node
    without partitions gives none.
    """
    async with gated() as world, responder(world) as (wire, node):
        wire.ask("acme", "settled.online.lanes.1")
        wire.ask("acme", "")
        wire.ask("a b")
        partitions, node.owned.partitions = node.partitions, {}
        wire.ask("acme", "_INBOX.x.2")
        node.owned.partitions = partitions
        wire.ask("acme")
        await until(lambda: wire.sent)
        await turns()
        assert ["_INBOX.x.1"] == [to for to, _ in wire.sent]


async def test_concurrent_answers_are_bounded():
    """M."""
    async with gated() as world, responder(world) as (wire, _):
        for _ in range(1_000):
            wire.ask("acme")
        await until(lambda: len(wire.sent) >= 32)
        await turns()
        assert 32 == len(wire.sent)
        wire.ask("acme")
        await until(lambda: len(wire.sent) == 33)


async def test_failing_answer_ends_nothing():
    failed = []

    def lost(project):
        if not failed:
            failed.append(project)
            raise ZeroDivisionError

    async with gated() as world, responder(world, lost) as (wire, _):
        wire.ask("acme")
        await until(lambda: failed)
        wire.broken = True
        wire.ask("acme")
        await until(lambda: wire.failed)
        wire.broken = False
        assert [] == wire.sent
        wire.ask("acme")
        await until(lambda: len(wire.sent) == 1)
