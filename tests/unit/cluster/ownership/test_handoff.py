"""Both sides of what is held, each alone, with an etcd that is away at the wrong moment."""

import asyncio

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.ownership.handoff import HandoffId
from evenlane.engine.cluster.ownership.handoff_publisher import HandoffPublisher
from evenlane.engine.cluster.ownership.handoff_receiver import HandoffReceiver
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.core.lane.handoff_state import HandoffState, StreamIdentity
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.ring.coordination.ports import Delete
from evenlane.ring.membership.records import HeldLane, HeldRecord, decode, encode
from tests.support.lane_host import Host
from tests.support.membership_cluster import ENV, Client, key
from tests.support.until import until

HELD = HandoffId(3, 17)
LEASE = 1  # the first that is granted
KEY = key("held", 3, 17)


def over(*running, done=()):
    return {"lanes": HandoffState(0, StreamIdentity("s", 9, 99, 0), set(running), list(done), over=True)}


def cut_off(running, done):
    """As a lane says it that has done so much."""
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


def record(running=(), done=()):
    return HeldRecord(
        id="a",
        epoch=17,
        lease=LEASE,
        lanes={"lanes": HeldLane(created="s", high=9, high_at=99, running=list(running), done=list(done))},
    )


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


async def held_records(client):
    item = await client.get(KEY)
    return None if item is None else (decode(HeldRecord, KEY, item.value), item.lease)


async def release(client, publisher, lanes):
    """The revision of the transaction that releases the partition."""
    return (await client.txn([], publisher.record_put(HELD, lanes))).revision


class TestTelling:
    async def test_nothing_held_is_nothing_told(self, client, publisher):
        assert [] == publisher.record_put(HELD, {})
        await publisher.follow(HELD, {}, 5)
        assert await publisher.all_published(0)

    async def test_what_is_lent_is_told_with_each_word(self, client, publisher):
        """Q, Z1: though nothing is held, and until the last of what is has ended."""
        (put,) = publisher.record_put(HandoffId(4, 1), {}, {"acme": 2.5})
        assert (0, {"acme": 2.5}) == (put.lease, decode(HeldRecord, put.key, put.value).lent)
        lanes = over(1)
        revision = (await client.txn([], publisher.record_put(HELD, lanes, {"acme": 2.5}))).revision
        await publisher.follow(HELD, lanes, revision)
        end(lanes, 1)
        assert await publisher.all_published(5)
        found = decode(HeldRecord, KEY, (await client.get(KEY)).value)
        assert ({"acme": 2.5}, [1]) == (found.lent, found.lanes["lanes"].done)

    async def test_each_end_is_told_and_the_last_word_needs_no_lease(self, client, publisher):
        """Z1: its node may leave when all is told."""
        lanes = over(1, 2, done=[5])
        await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
        assert (record([1, 2], [5]), publisher.lease) == await held_records(client)
        assert not await publisher.all_published(0)
        end(lanes, 2)
        await until(lambda: _is(client, record([1], [2, 5]), publisher.lease))
        assert not await publisher.all_published(0)
        end(lanes, 1)
        assert await publisher.all_published(5)
        assert (record([], [1, 2, 5]), 0) == await held_records(client)
        await client.revoke(publisher.lease)
        assert await held_records(client) is not None

    async def test_what_was_only_done_is_said_once(self, client, publisher):
        lanes = over(done=[5])
        await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
        assert await publisher.all_published(0)
        assert (record([], [5]), 0) == await held_records(client)

    async def test_it_fits_into_a_transaction_however_much_was_done(self, client, publisher):
        """D: the log was away for a second, at 200,000 messages a second. What runs is never left out."""
        lanes = cut_off(range(500_000, 500_064), range(10_000_000, 10_200_000))
        await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
        text, _ = await held_records(client)
        assert list(range(500_000, 500_064)) == text.lanes["lanes"].running

    async def test_what_ends_after_that_is_told_all_the_same(self, client, publisher):
        """D: else it would pass for one that was never started, and be begun again."""
        last = 20_000_000
        lanes = cut_off([last], range(10_000_000, 10_200_000))
        await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
        end(lanes, last)
        assert await publisher.all_published(5)
        text, _ = await held_records(client)
        assert last in text.lanes["lanes"].done

    async def test_what_ends_while_the_partition_is_being_released_is_told(self, client, publisher):
        lanes = over(1)
        revision = await release(client, publisher, lanes)
        end(lanes, 1)
        assert not await publisher.all_published(0)
        await publisher.follow(HELD, lanes, revision)
        await until(lambda: _is(client, record([], [1]), 0))

    async def test_one_that_waits_for_all_is_told_between_release_and_its_answer(self, client, publisher):
        """P5: else the node would leave, and its lease take the key with it."""
        lanes = over(1)
        await release(client, publisher, lanes)
        assert not await publisher.all_published(0)

    async def test_an_answer_that_was_lost_is_looked_up_however_long_etcd_is_away(self, client, publisher):
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

    @pytest.mark.parametrize("answer", ["came", "is lost"])
    async def test_the_key_is_known_until_the_last_word_is_told(self, client, publisher, answer):
        """O: else the lease's keeper takes it for a key of a term that etcd has gone back to."""
        lanes = over(1)
        puts = publisher.record_put(HELD, lanes)
        assert {KEY} == publisher.keys
        revision = (await client.txn([], puts)).revision
        assert {KEY} == publisher.keys
        client.cut()
        following = asyncio.ensure_future(publisher.follow(HELD, lanes, revision if answer == "came" else 0))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (answer == "came", {KEY}) == (following.done(), publisher.keys)
        end(lanes, 1)
        assert not await publisher.all_published(0.01)
        assert {KEY} == publisher.keys
        client.heal()
        assert await publisher.all_published(5)
        assert frozenset() == publisher.keys

    async def test_one_that_says_what_was_done_is_known_until_it_is_released(self, client, publisher):
        lanes = over(done=[5])
        revision = await release(client, publisher, lanes)
        assert {KEY} == publisher.keys
        await publisher.follow(HELD, lanes, revision)
        assert frozenset() == publisher.keys

    async def test_an_end_is_told_when_etcd_is_back(self, client, publisher):
        lanes = over(1)
        await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
        client.cut()
        end(lanes, 1)
        await asyncio.sleep(0)
        assert not await publisher.all_published(0)
        client.heal()
        assert await publisher.all_published(5)
        assert (record([], [1]), 0) == await held_records(client)

    async def test_a_key_that_is_another_term_s_is_left_alone(self, client, publisher):
        """It went with the lease, and stands anew."""
        lanes = over(1)
        await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
        await client.delete(KEY)
        await client.put(KEY, b"{}")
        end(lanes, 1)
        assert await publisher.all_published(5)
        assert b"{}" == (await client.get(KEY)).value

    @pytest.mark.parametrize("lost", ["key", "lease"])
    async def test_nobody_is_told_when_the_key_has_gone(self, client, publisher, lost):
        lanes = over(1, 2)
        await publisher.follow(HELD, lanes, await release(client, publisher, lanes))
        await (client.delete(KEY) if lost == "key" else client.revoke(publisher.lease))
        end(lanes, 1)
        assert await publisher.all_published(5)
        assert None is await held_records(client)


class Taker:
    def __init__(self):
        self.changed, self.gone, self.durable = [], [], True

    def held_changed(self, number, record):
        self.changed.append((number, record))

    def held_released(self, number, record):
        self.held_gone(number, record)

    def held_gone(self, number, record):
        if record.running:
            self.gone.append((number, record.lanes["lanes"].running))

    def held_durable(self, number, record):
        return self.durable


@pytest.fixture
async def taker():
    return Taker()


@pytest.fixture
async def holding(client, taker):
    made = HandoffReceiver(client, ENV, taker, RecordReader(ENV))
    yield made
    await made.close()


async def put(client, value, held=HELD):
    """As a living owner does it: under a lease as long as anything runs."""
    lease = await client.grant(600) if value.running else 0
    await client.put(key("held", *held), encode(value), lease)


class TestHolding:
    async def test_only_what_is_of_the_partition_is_found(self, client, holding):
        await put(client, record([1]))
        await put(client, record([2]), HandoffId(30, 5))
        await put(client, record([3]), HandoffId(3, 18))
        assert {HELD: record([1]), HandoffId(3, 18): record([3])} == await holding.of(3)

    async def test_the_key_goes_when_all_it_says_is_settled_and_not_before(self, client, holding, taker):
        """D."""
        taker.durable = False
        await put(client, record([1]))
        holding.follow(await holding.of(3))
        await put(client, record([], [1]))
        await until(lambda: taker.changed[-1:] == [(3, record([], [1]))])
        assert await held_records(client) is not None
        taker.durable = True
        await until(lambda: _gone(client))
        assert [] == taker.gone

    async def test_what_happened_between_reading_and_following_is_passed_on(self, client, holding, taker):
        """Also if others are followed already."""
        await put(client, record([1]), HandoffId(1, 5))
        holding.follow(await holding.of(1))
        await until(lambda: taker.changed)
        await put(client, record([1]))
        await put(client, record([2]), HandoffId(3, 18))
        read = await holding.of(3)
        await put(client, record([], [1]))
        await client.delete(key("held", 3, 18))
        await until(lambda: _received(client, holding))
        holding.follow(read)
        await until(lambda: (3, record([], [1])) in taker.changed)
        await until(lambda: taker.gone == [(3, [2])])

    async def test_it_is_followed_anew_after_a_partition_was_given_up(self, client, holding, taker):
        await put(client, record([1]))
        holding.follow(await holding.of(3))
        await until(lambda: taker.changed)
        holding.discard(3)
        await put(client, record([1], [2]))
        assert 1 == len(taker.changed)
        read = await holding.of(3)
        await client.delete(KEY)
        holding.follow(read)
        await until(lambda: taker.gone == [(3, [1])])

    async def test_a_lost_watch_hides_nothing(self, client, holding, taker):
        """Fault 11."""
        await put(client, record([1]))
        await put(client, record([2]), HandoffId(3, 18))
        holding.follow(await holding.of(3))
        await until(lambda: taker.changed)
        client.cut()
        other = client.peer()
        await put(other, record([], [1]))
        await other.delete(key("held", 3, 18))
        client.heal()
        await until(lambda: (3, record([], [1])) in taker.changed)
        await until(lambda: taker.gone == [(3, [2])])

    async def test_the_last_word_counts_for_what_is_let_go(self, client, holding, taker):
        await put(client, record([1, 2, 3]))
        holding.follow(await holding.of(3))
        await until(lambda: taker.changed)
        await put(client, record([2, 3], [1]))
        await client.txn([], [Delete(KEY)])
        await until(lambda: taker.gone == [(3, [2, 3])])

    async def test_what_neither_runs_nor_has_ended_is_let_go(self, client, holding, taker):
        """Its handler was never started."""
        await put(client, record([1, 2]))
        holding.follow(await holding.of(3))
        await until(lambda: taker.changed)
        await put(client, record([1]))
        await until(lambda: taker.gone == [(3, [2])])
        await client.delete(KEY)
        await until(lambda: taker.gone == [(3, [2]), (3, [1])])

    async def test_what_runs_under_no_lease_runs_nowhere(self, client, holding, taker):
        """L: put by hand, or over a living owner's who has died since: nobody would see the end of it."""
        await put(client, record([1, 2]))
        holding.follow(await holding.of(3))
        await until(lambda: taker.changed)
        await client.put(KEY, encode(record([1], [2])))
        await until(lambda: taker.gone == [(3, [1])])
        await until(lambda: _gone(client))

    async def test_nobody_watches_when_nothing_is_held(self, client, holding, taker):
        await put(client, record([1]))
        holding.follow(await holding.of(3))
        await put(client, record([], [1]))
        await until(lambda: _gone(client))
        await until(lambda: not client._watches)

    @pytest.mark.parametrize("name", ["x/y", "3", "3/", "3/x", "/", "3/17/1", "3/017", "3/+17", "٣/17", "3/1_7"])
    async def test_keys_that_are_none_are_passed_over(self, client, holding, taker, name):
        """Issue 4. They are nobody's to take for another's."""
        await client.put(key("held", name), encode(record([7])))
        await put(client, record([1]))
        assert {HELD: record([1])} == await holding.of(3)
        holding.follow(await holding.of(3))
        await client.put(key("held", name), encode(record([8], [1])))
        await put(client, record([], [1]))
        await until(lambda: (3, record([], [1])) in taker.changed)
        assert (3, record([8], [1])) not in taker.changed
        await until(lambda: _gone(client))

    async def test_a_value_that_is_none_changes_nothing(self, client, holding, taker):
        """Issue 4: counted, and named in the log (test_membership has that)."""
        await put(client, record([1]))
        holding.follow(await holding.of(3))
        await until(lambda: taker.changed)
        await client.put(KEY, b"\xff")
        await until(lambda: holding._records.skipped)
        await client.delete(KEY)
        await until(lambda: taker.gone == [(3, [1])])


async def _is(client, value, lease):
    return await held_records(client) == (value, lease)


async def _gone(client):
    return await client.get(KEY) is None


async def _received(client, holding):
    """The watch that runs has passed on all there is."""
    return all(watch._seen == client.store.revision and not watch._read for watch in client._watches)
