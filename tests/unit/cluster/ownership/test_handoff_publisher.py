"""The previous owner's side of a handoff, with an etcd that is away at the wrong moment."""

import asyncio

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.ownership.handoff import HandoffId
from evenlane.engine.cluster.ownership.handoff_publisher import HandoffPublisher
from evenlane.engine.core.lane.handoff_state import HandoffState, StreamIdentity
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.ring.membership.records import HeldRecord, decode
from tests.support.lane_host import Host
from tests.support.membership_cluster import ENV, Client
from tests.support.until import until
from tests.unit.cluster.ownership.handoff_records import HELD, KEY, LEASE, held_record, record


def over(*running, done=()):
    return {"lanes": HandoffState(0, StreamIdentity("s", 9, 99, 0), set(running), list(done), over=True)}


def cut_off(running, done):
    """Return the handoff state of a lane that has settled these messages, and is cut off from its log."""
    lane = FedLane(LaneId("lanes", 3), 17, MemoryBudget(), Host())
    for sequence in done:
        lane.settle(sequence, lane.generation, 0)
    lane.stop(running)
    lane.cut_off()
    return {"lanes": lane.handoff}


def end(lanes, sequence):
    lane = lanes["lanes"]
    lane.running.discard(sequence)
    lane.done.append(sequence)
    lane.on_change()


@pytest.fixture
async def client():
    made = Client()
    yield made
    made.heal()
    await made.close()


@pytest.fixture
async def publisher(client):
    lease = await client.grant(60)
    assert lease == LEASE
    made = HandoffPublisher(client, ENV, "a", lease)
    made.lease = lease
    yield made
    await made.close()


async def release(client, publisher, lanes):
    """Release the partition; return the revision."""
    return (await client.txn([], publisher.record_put(HELD, lanes))).revision


async def test_no_record_without_running_or_settled_messages(publisher):
    assert [] == publisher.record_put(HELD, {})
    await publisher.follow(HELD, {}, 5)
    assert await publisher.wait_until_published(0)


async def test_each_record_has_the_loans(client, publisher):
    """Q, Z1: also without any handler, and when the last one has ended."""
    (put,) = publisher.record_put(HandoffId(4, 1), {}, {"acme": 2.5})
    assert (0, {"acme": 2.5}) == (put.lease, decode(HeldRecord, put.key, put.value).lent)
    lanes = over(1)
    revision = (await client.txn([], publisher.record_put(HELD, lanes, {"acme": 2.5}))).revision
    await publisher.follow(HELD, lanes, revision)
    end(lanes, 1)
    assert await publisher.wait_until_published(5)
    found = decode(HeldRecord, KEY, (await client.get(KEY)).value)
    assert ({"acme": 2.5}, [1]) == (found.lent, found.lanes["lanes"].done)


async def test_each_end_is_published_and_the_last_record_needs_no_lease(client, publisher):
    """Z1: the node may leave then."""
    lanes = over(1, 2, done=[5])
    await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
    assert (record([1, 2], [5]), publisher.lease) == await held_record(client)
    assert not await publisher.wait_until_published(0)
    end(lanes, 2)
    await until(lambda: _is(client, record([1], [2, 5]), publisher.lease))
    assert not await publisher.wait_until_published(0)
    end(lanes, 1)
    assert await publisher.wait_until_published(5)
    assert (record([], [1, 2, 5]), 0) == await held_record(client)
    await client.revoke(publisher.lease)
    assert await held_record(client) is not None


async def test_settled_messages_need_one_record(client, publisher):
    lanes = over(done=[5])
    await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
    assert await publisher.wait_until_published(0)
    assert (record([], [5]), 0) == await held_record(client)


async def test_large_record_fits_into_a_transaction(client, publisher):
    """D: the log was away for a second at 200,000 messages per second. Running messages are never left out."""
    lanes = cut_off(range(500_000, 500_064), range(10_000_000, 10_200_000))
    await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
    found, _ = await held_record(client)
    assert list(range(500_000, 500_064)) == found.lanes["lanes"].running


async def test_end_after_a_large_record_is_published(client, publisher):
    """D: otherwise the message would seem never to have started, and be handled again."""
    last = 20_000_000
    lanes = cut_off([last], range(10_000_000, 10_200_000))
    await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
    end(lanes, last)
    assert await publisher.wait_until_published(5)
    found, _ = await held_record(client)
    assert last in found.lanes["lanes"].done


async def test_end_during_the_release_is_published(client, publisher):
    """P5: nothing counts as published before. Otherwise the node would leave, and the key expire with its lease."""
    lanes = over(1)
    revision = await release(client, publisher, lanes)
    end(lanes, 1)
    assert not await publisher.wait_until_published(0)
    await publisher.follow(HELD, lanes, revision)
    await until(lambda: _is(client, record([], [1]), 0))


async def test_lost_answer_to_the_release_is_looked_up(client, publisher):
    """Z1."""
    lanes = over(1)
    await release(client, publisher, lanes)
    client.cut()
    following = asyncio.ensure_future(publisher.follow(HELD, lanes, 0))
    await asyncio.sleep(0)
    end(lanes, 1)
    client.heal()
    await following
    await until(lambda: _is(client, record([], [1]), 0))


@pytest.mark.parametrize("answer", ["arrived", "lost"])
async def test_key_is_known_until_the_last_record_is_published(client, publisher, answer):
    """O: otherwise it would seem to be a key of a session that an etcd rollback has brought back."""
    lanes = over(1)
    puts = publisher.record_put(HELD, lanes)
    assert {KEY} == publisher.keys
    revision = (await client.txn([], puts)).revision
    assert {KEY} == publisher.keys
    client.cut()
    following = asyncio.ensure_future(publisher.follow(HELD, lanes, revision if answer == "arrived" else 0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert (answer == "arrived", {KEY}) == (following.done(), publisher.keys)
    end(lanes, 1)
    assert not await publisher.wait_until_published(0.01)
    assert {KEY} == publisher.keys
    client.heal()
    assert await publisher.wait_until_published(5)
    assert frozenset() == publisher.keys


async def test_key_without_handlers_is_known_until_the_release(client, publisher):
    lanes = over(done=[5])
    revision = await release(client, publisher, lanes)
    assert {KEY} == publisher.keys
    await publisher.follow(HELD, lanes, revision)
    assert frozenset() == publisher.keys


async def test_end_is_published_when_etcd_is_back(client, publisher):
    lanes = over(1)
    await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
    client.cut()
    end(lanes, 1)
    await asyncio.sleep(0)
    assert not await publisher.wait_until_published(0)
    client.heal()
    assert await publisher.wait_until_published(5)
    assert (record([], [1]), 0) == await held_record(client)


async def test_key_of_another_session_is_left_alone(client, publisher):
    """The first key expired with the lease."""
    lanes = over(1)
    await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
    await client.delete(KEY)
    await client.put(KEY, b"{}")
    end(lanes, 1)
    assert await publisher.wait_until_published(5)
    assert b"{}" == (await client.get(KEY)).value


@pytest.mark.parametrize("lost", ["key", "lease"])
async def test_no_end_is_published_after_the_key_is_gone(client, publisher, lost):
    lanes = over(1, 2)
    await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
    await (client.delete(KEY) if lost == "key" else client.revoke(publisher.lease))
    end(lanes, 1)
    assert await publisher.wait_until_published(5)
    assert None is await held_record(client)


async def _is(client, value, lease):
    return await held_record(client) == (value, lease)
