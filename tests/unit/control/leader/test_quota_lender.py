"""Quota lending between two nodes and the leader on a bus in memory: a short node gets unused quota (W, Q)."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.control.leader.quota_lender import QuotaLender
from evenlane.engine.core.records.share_messages import (
    BorrowGrant,
    LendOrder,
    ShareConfirmation,
    ShareRequest,
    Shortage,
    decode_for_leader,
    to_all,
    to_leader,
    to_node,
)
from evenlane.quota.lending.parts import Loan
from evenlane.ring.coordination.ports import CreatedAt
from tests.support.node.world import topic
from tests.support.until import until
from tests.unit.control.leader.lending_world import ENV, GROUPS, PROJECT, Bus, Node


@pytest.fixture
async def world(request):
    bus = Bus()
    made = SimpleNamespace(bus=bus, a=Node(bus, "a", 0), b=Node(bus, "b", 1, **getattr(request, "param", {})))
    made.lender = QuotaLender(bus.connection, ENV, 1.0, soon_s=0.01)
    made.serving = asyncio.create_task(made.lender.serve(CreatedAt("leader", 7)))
    for node in (made.a, made.b):
        node.borrower.open()
    yield made
    made.serving.cancel()
    await asyncio.gather(made.serving, return_exceptions=True)
    for node in (made.a, made.b):
        node.shares.stop()
        await node.borrower.close()


def own(node):
    return node.shares.compute_own_part(PROJECT)


def asks(world):
    """The leader's rounds."""
    return [
        msgspec.json.decode(body, type=ShareRequest) for subject, body in world.bus.received if subject == to_all(ENV)
    ]


async def both_examined(world):
    """Wait until both nodes have looked at the topic."""
    await until(lambda: world.a.demand.examined and world.b.demand.examined)


async def test_short_node_borrows_unused_quota_until_the_leader_ends(world):
    """W, Q: the parts never exceed the whole, and a loan that nobody renews expires."""
    assert own(world.a) + own(world.b) == pytest.approx(1)
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    assert world.a.part + world.b.part <= 1 + 1e-6
    assert world.b.part < own(world.b)
    world.serving.cancel()
    await until(lambda: (world.a.part, world.b.part) == (own(world.a), own(world.b)))


async def test_node_reports_its_loans_before_it_confirms_them(world):
    """Q: the next owner of its groups must know of them if the node dies."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    lent, before = next((lent, before) for lent, before in world.b.lent if lent)
    assert {PROJECT: max(lent.values())} == lent
    assert max(lent.values()) > now_ns()
    confirmed = [n for n, (_, body) in enumerate(world.bus.received) if b'"Confirm"' in body and b'"node":"b"' in body]
    assert min(n for n in confirmed if b"[0.0," not in world.bus.received[n][1]) >= before


async def test_loan_returns_as_soon_as_its_lender_is_short(world):
    """W."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    world.b.put(1_000)
    await until(lambda: world.b.part >= own(world.b) - 1e-6)
    assert world.a.part + world.b.part <= 1 + 1e-6


async def test_no_loan_without_a_short_node(world):
    await both_examined(world)
    assert [] == [subject for subject, _ in world.bus.received if subject != to_leader(ENV)]


async def test_no_loan_that_may_outlast_the_lenders_lease(world):
    """Q, Z3: if the lender dies, the next owner of its groups has all of their share."""
    world.b.trusted_until = now_ns()
    world.a.put(1_000)
    await until(lambda: any(b'"Confirm"' in body for _, body in world.bus.received))
    await until(lambda: len(asks(world)) > 3)
    assert world.b.part == own(world.b)
    assert world.a.part == own(world.a)


async def test_rounds_continue_while_a_node_is_short(world):
    """W: the first rounds find nothing to lend, and a later one does."""
    world.b.trusted_until = now_ns()
    world.a.put(1_000)
    await until(lambda: len(asks(world)) > 3)
    world.b.trusted_until = 1 << 62
    await until(lambda: world.a.part > own(world.a) + 0.1)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b'{"type":"Ask"}', b'{"type":"Lend","node":1}', b"\xff\xfe", b'{"type":"What"}']
)
async def test_unreadable_message_is_skipped(world, body):
    """Anybody may publish to these subjects."""
    sender = world.bus.connection()
    for subject in (to_all(ENV), to_leader(ENV), to_node(ENV, "a")):
        sender.send(subject, body)
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)


@pytest.mark.parametrize(
    "message",
    [
        BorrowGrant("a", 9, 1, 1.0, {PROJECT: -1.0}, []),
        BorrowGrant("a", 9, 1, 1.0, {PROJECT: 2.0}, []),
        LendOrder("a", 9, 1, 1.0, {PROJECT: Loan(-1.0, -1.0)}),
        LendOrder("a", 9, 1, 1.0, {PROJECT: Loan(1e300, 1e300)}),
        LendOrder("a", 9, 1, 1.0, {PROJECT: Loan(float("nan"), 0.0)}),
    ],
)
async def test_message_with_an_impossible_part_is_skipped(world, message):
    """Q."""
    sender = world.bus.connection()
    world.serving.cancel()
    for each in (ShareRequest(9, 1, [PROJECT]), message):
        sender.send(to_node(ENV, "a"), msgspec.json.encode(each))
    sender.send(to_node(ENV, "a"), msgspec.json.encode(LendOrder("a", 9, 2, 1.0, {})))
    await until(
        lambda: [
            each for _, body in world.bus.received if isinstance(each := decode_for_leader(body), ShareConfirmation)
        ]
    )
    assert world.a.part == own(world.a)


async def test_each_node_keeps_its_own_part_without_nats(world):
    """Q: lending resumes when NATS is back."""
    world.bus.away = True
    world.a.put(1_000)
    await both_examined(world)
    assert (own(world.a), own(world.b)) == (world.a.part, world.b.part)
    world.bus.away = False
    await until(lambda: world.a.part > own(world.a) + 0.1)


async def test_restarted_term_remembers_its_loans(world):
    """Q: etcd was away for a moment, but the leader key stayed, and the epoch is the same."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    number = asks(world)[-1].number
    world.serving.cancel()
    await asyncio.gather(world.serving, return_exceptions=True)
    world.serving = asyncio.create_task(world.lender.serve(CreatedAt("leader", 7)))
    await until(lambda: asks(world)[-1].number > number + 2)
    assert world.a.part + world.b.part <= 1 + 1e-6
    await until(lambda: world.a.part > own(world.a) + 0.1)


@pytest.mark.parametrize("world", [{"configured": False}], indirect=True)
async def test_node_lends_quota_of_a_topic_it_has_no_message_of(world):
    """W, E3: the node started after the topic was created, and another node has all of its work."""
    world.b.queues.of_project = lambda _project: []
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    assert world.a.part + world.b.part <= 1 + 1e-6


async def test_loans_end_when_the_topic_is_divided_differently(world):
    """Q, E3: loans were granted by the old own parts."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    world.serving.cancel()
    for node in (world.a, world.b):
        node.topics[PROJECT] = topic(qps=100, groups=3, spread=2)
        node.shares.configure(PROJECT)
    assert world.a.part <= own(world.a)
    assert world.a.part + world.b.part <= 1 + 1e-6


async def test_loans_survive_a_change_of_quota(world):
    """X4: parts are fractions."""
    world.a.put(1_000)
    await until(lambda: world.a.part > own(world.a) + 0.1)
    world.serving.cancel()
    world.a.topics[PROJECT] = topic(qps=500, groups=GROUPS, spread=2)
    world.a.shares.configure(PROJECT)
    assert world.a.part > own(world.a) + 0.1


@pytest.mark.parametrize("world", [{"every_s": 600}], indirect=True)
async def test_changed_topic_is_examined_before_its_turn(world):
    """X4: the node may have lent what it needs under the new quota."""
    await world.b.borrower.look()
    world.b.put(1_000)
    assert [] == short_after_change(world)
    for notify in world.b.on_change:
        notify(PROJECT, None)
    assert ["b"] == await until(lambda: short_after_change(world))


async def test_shortage_under_new_rules_starts_a_round_at_once(world):
    """X4: even if the last round was about the same topic."""
    world.lender._every_s = 600
    world.a.put(1_000)
    world.b.trusted_until = now_ns()  # so nothing is lent, and no round is due
    await until(lambda: asks(world) and asks(world)[-1].projects == [PROJECT])
    number = asks(world)[-1].number
    await asyncio.gather(*(node.borrower.close() for node in (world.a, world.b)))
    world.bus.connection().send(to_leader(ENV), msgspec.json.encode(Shortage("a", [PROJECT], anew=True)))
    await until(lambda: asks(world)[-1].number > number)


def short_after_change(world):
    """The nodes that reported a shortage under new rules."""
    messages = [decode_for_leader(body) for subject, body in world.bus.received if subject == to_leader(ENV)]
    return [each.node for each in messages if isinstance(each, Shortage) and each.anew]
