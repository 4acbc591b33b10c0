"""Leader and nodes of one topic on a bus in memory: who is short gets what others don't use (W, Q)."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.control.leader.quota_lender import QuotaLender
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.scheduler.interface import NOTHING_USED, Used
from evenlane.engine.core.wire.share_messages import (
    Ask,
    Confirm,
    Grant,
    Lend,
    Short,
    decode_for_leader,
    to_all,
    to_leader,
    to_node,
)
from evenlane.engine.node.queues.activity import Activity
from evenlane.engine.node.queues.quota_shares import QuotaShares
from evenlane.engine.node.services.quota_borrower import QuotaBorrower
from evenlane.engine.node.services.quota_demand import Demand
from evenlane.quota.lending.rounds import Loan
from evenlane.ring.coordination.ports import CreatedAt
from tests.support.node.world import CLUSTER_CONFIG, topic
from tests.support.until import until

ENV = "online"
GROUPS = 10
PROJECT = "still"
WHOLE = topic(qps=100, groups=GROUPS, spread=2)


class Bus:
    def __init__(self):
        self.received = []
        self.listeners = {}
        self.away = False

    def connection(self):
        return Connection(self)


class Connection:
    def __init__(self, bus):
        self.bus, self.mine = bus, []

    async def open(self):
        pass

    def listen(self, subject, on_message):
        self.bus.listeners.setdefault(subject, []).append(on_message)
        self.mine.append((subject, on_message))

    def send(self, subject, body):
        if self.bus.away:
            raise Disconnected("away")
        self.bus.received.append((subject, body))
        for on_message in self.bus.listeners.get(subject, ()):
            asyncio.get_running_loop().call_soon(on_message, subject.encode(), b"", b"", body)

    async def close(self):
        for subject, on_message in self.mine:
            self.bus.listeners[subject].remove(on_message)


def waiting(count, group):
    queue = Queue(PROJECT, group, "mid", 0, 0)
    queue.spill(1, count)
    return queue


class Node:
    """As much of one as shares need: it owns one of the two partitions."""

    def __init__(self, bus, name, partition):
        self.id, self.cluster_config, self.bus = name, CLUSTER_CONFIG, bus
        self.mine = {partition}
        self.topics = {PROJECT: WHOLE}
        self.scheduler = SimpleNamespace(configure=lambda *_: None, used=self.used)
        self.trusted_until = 1 << 62
        self.messages = []
        self.empty = Queue(PROJECT, 0, "mid", 0, partition)
        self.activity = Activity()
        self.activity.note(self.empty)
        self.queues = SimpleNamespace(
            of=lambda _project: self.messages or [self.empty],
            all=lambda: self.messages or [self.empty],
            activity=self.activity,
            on_gone=[],
        )
        self.queues.shares = QuotaShares(
            CLUSTER_CONFIG, self.scheduler, self.topics.get, lambda _: (), self.mine, {PROJECT}, lambda: None
        )
        self.queues.shares.configure(PROJECT)
        self.on_change = []
        self.lent = []  # as it is told, and how much the leader had heard by then
        self.taking = QuotaBorrower(
            bus.connection(), ENV, self, self.on_change, self.note, every_s=0.02, demand=Demand(1_000_000)
        )

    def used(self, _project, now):
        """All that it may have is used, if anything waits."""
        return Used(now // 1_000, has=True, waits=True) if self.messages else NOTHING_USED

    def note(self, lent):
        self.lent.append((lent, len(self.bus.received)))

    @property
    def shares(self):
        return self.queues.shares

    def put(self, count):
        """So many messages wait for quota in each of five groups."""
        self.messages = [waiting(count, group) for group in range(5)]
        for queue in self.messages:
            self.activity.note(queue)

    @property
    def part(self):
        return self.shares.loans.part(PROJECT, self.shares.own(PROJECT))


@pytest.fixture
async def world():
    bus = Bus()
    made = SimpleNamespace(bus=bus, a=Node(bus, "a", 0), b=Node(bus, "b", 1))
    made.giving = QuotaLender(bus.connection, ENV, 1.0, soon_s=0.01)
    made.leading = asyncio.create_task(made.giving.serve(CreatedAt("leader", 7)))
    for node in (made.a, made.b):
        node.taking.open()
    yield made
    made.leading.cancel()
    await asyncio.gather(made.leading, return_exceptions=True)
    for node in (made.a, made.b):
        node.shares.stop()
        await node.taking.close()


def own(node):
    return node.shares.own(PROJECT)


async def test_what_one_does_not_use_the_other_gets_and_it_ends_with_the_leader(world):
    """W, Q: never more than the whole; and a loan that nobody renews runs out."""
    assert own(world.a) + own(world.b) == pytest.approx(1)
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    assert world.a.part + world.b.part <= 1 + 1e-6
    assert world.b.part < own(world.b)
    world.leading.cancel()
    await until(lambda: (world.a.part, world.b.part) == (own(world.a), own(world.b)))


async def test_what_is_lent_is_told_before_the_leader_hears_of_it(world):
    """Q: should the lender die, the next owner of its groups is to know."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    lent, before = next((lent, before) for lent, before in world.b.lent if lent)
    assert {PROJECT: max(lent.values())} == lent
    assert max(lent.values()) > now_ns()
    confirmed = [n for n, (_, body) in enumerate(world.bus.received) if b'"Confirm"' in body and b'"node":"b"' in body]
    assert min(n for n in confirmed if b"[0.0," not in world.bus.received[n][1]) >= before


async def test_it_goes_back_when_the_lender_needs_it(world):
    """W: at once, not when the loan has run out."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    world.b.put(1_000)
    await until(lambda: world.b.part >= own(world.b) - 1e-6)
    assert world.a.part + world.b.part <= 1 + 1e-6


async def test_nothing_is_lent_where_nobody_is_short(world):
    await asyncio.gather(*(until(lambda n=node: n.taking._demand._looks) for node in (world.a, world.b)))
    assert [] == [subject for subject, _ in world.bus.received if subject != to_leader(ENV)]


async def test_a_node_lends_nothing_that_its_lease_may_not_outlast(world):
    """Q, Z3: should it die, the next owner of its groups has all of their share."""
    world.b.trusted_until = now_ns()
    world.a.put(1_000)
    await until(lambda: any(b'"Confirm"' in body for _, body in world.bus.received))
    await until(lambda: len([b for _, b in world.bus.received if b'"Ask"' in b]) > 3)
    assert world.b.part == own(world.b)
    assert world.a.part == own(world.a)


async def test_it_is_asked_again_as_long_as_it_is_short(world):
    """W: nothing was to be had in the first round, but then there is."""
    world.b.trusted_until = now_ns()
    world.a.put(1_000)
    await until(lambda: len([b for _, b in world.bus.received if b'"Ask"' in b]) > 3)
    world.b.trusted_until = 1 << 62
    await until(lambda: world.a.part > own(world.a) + 0.1)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b'{"type":"Ask"}', b'{"type":"Lend","node":1}', b"\xff\xfe", b'{"type":"What"}']
)
async def test_what_is_no_message_is_passed_over(world, body):
    """Bad input: anybody may publish there."""
    sender = world.bus.connection()
    for subject in (to_all(ENV), to_leader(ENV), to_node(ENV, "a")):
        sender.send(subject, body)
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)


@pytest.mark.parametrize(
    "word",
    [
        Grant("a", 9, 1, 1.0, {PROJECT: -1.0}, []),
        Grant("a", 9, 1, 1.0, {PROJECT: 2.0}, []),
        Lend("a", 9, 1, 1.0, {PROJECT: Loan(-1.0, -1.0)}),
        Lend("a", 9, 1, 1.0, {PROJECT: Loan(1e300, 1e300)}),
        Lend("a", 9, 1, 1.0, {PROJECT: Loan(float("nan"), 0.0)}),
    ],
)
async def test_what_makes_no_sense_is_passed_over(world, word):
    """Bad input, Q."""
    sender = world.bus.connection()
    world.leading.cancel()
    for each in (Ask(9, 1, [PROJECT]), word):
        sender.send(to_node(ENV, "a"), msgspec.json.encode(each))
    sender.send(to_node(ENV, "a"), msgspec.json.encode(Lend("a", 9, 2, 1.0, {})))
    await until(
        lambda: [each for _, body in world.bus.received if isinstance(each := decode_for_leader(body), Confirm)]
    )
    assert world.a.part == own(world.a)


async def test_without_a_server_everybody_has_its_own(world):
    """Q: and when it is back, loans are made again."""
    world.bus.away = True
    world.a.put(1_000)
    await asyncio.gather(*(until(lambda n=node: n.taking._demand._looks) for node in (world.a, world.b)))
    assert (own(world.a), own(world.b)) == (world.a.part, world.b.part)
    world.bus.away = False
    await until(lambda: world.a.part > own(world.a) + 0.1)


async def test_a_term_that_begins_again_knows_what_it_granted(world):
    """Q: etcd was away for a moment, and the leader's key stayed: the epoch is the same, and so are the loans."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    number = world.giving._rounds.number
    world.leading.cancel()
    await asyncio.gather(world.leading, return_exceptions=True)
    world.leading = asyncio.create_task(world.giving.serve(CreatedAt("leader", 7)))
    await until(lambda: world.giving._rounds.number > number + 2)
    assert world.a.part + world.b.part <= 1 + 1e-6
    await until(lambda: world.a.part > own(world.a) + 0.1)


async def test_a_node_lends_of_what_it_never_had_a_message_of(world):
    """W, E3: it was started after the topic was made, and all of its work comes to another node."""
    world.b.queues.of = lambda _project: []
    world.b.shares._configured.clear()
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    assert world.a.part + world.b.part <= 1 + 1e-6


async def test_what_was_borrowed_ends_when_the_topic_is_divided_otherwise(world):
    """Q, E3: own parts are others then, and what was granted went by the old ones."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    world.leading.cancel()
    for node in (world.a, world.b):
        node.topics[PROJECT] = topic(qps=100, groups=3, spread=2)
        node.shares.configure(PROJECT)
    assert world.a.part <= own(world.a)
    assert world.a.part + world.b.part <= 1 + 1e-6


async def test_another_quota_alone_leaves_loans_as_they_are(world):
    """X4: parts are fractions."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    world.leading.cancel()
    world.a.topics[PROJECT] = topic(qps=500, groups=GROUPS, spread=2)
    world.a.shares.configure(PROJECT)
    assert world.a.part > own(world.a) + 0.1


async def test_a_topic_that_changed_is_looked_at_before_its_turn(world):
    """X4: the node may have lent what it needs under the new quota."""
    for node in (world.a, world.b):
        await until(lambda n=node: n.taking._demand._looks)
    for node in (world.a, world.b):
        node.taking._every_s = 600
    looked = {node.id: node.taking._demand._looks[PROJECT].at for node in (world.a, world.b)}
    await until(lambda: world.b.taking._demand._looks[PROJECT].at > looked["b"])  # in turn, for the last time
    world.b.put(1_000)
    assert [] == restarted(world)
    for notify in world.b.on_change:
        notify(PROJECT, None)
    assert ["b"] == await until(lambda: restarted(world))


async def test_what_is_short_under_new_rules_has_a_round_before_its_turn(world):
    """X4: though the last round was about the same topic."""
    world.giving._every_s = 600
    world.a.put(1_000)
    world.b.trusted_until = now_ns()  # so nothing is lent, and no round is due
    await until(lambda: world.giving._rounds.number and world.giving._last == {PROJECT})
    number = world.giving._rounds.number
    await asyncio.gather(*(node.taking.close() for node in (world.a, world.b)))
    world.bus.connection().send(to_leader(ENV), msgspec.json.encode(Short("a", [PROJECT], anew=True)))
    await until(lambda: world.giving._rounds.number > number)


def restarted(world):
    """The nodes that are short of a topic under new rules."""
    words = [decode_for_leader(body) for subject, body in world.bus.received if subject == to_leader(ENV)]
    return [word.node for word in words if isinstance(word, Short) and word.anew]
