"""The next owner's side of a handoff, with an etcd that is away at the wrong moment."""

import pytest

from evenlane.engine.cluster.ownership.handoff import HandoffId
from evenlane.engine.cluster.ownership.handoff_receiver import HandoffReceiver
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.ring.coordination.ports import DeleteKey
from evenlane.ring.membership.records import encode
from tests.support.membership_cluster import ENV, key
from tests.support.until import until
from tests.unit.cluster.observed_client import ObservedClient
from tests.unit.cluster.ownership.handoff_records import HELD, KEY, held_record, record


@pytest.fixture
async def client():
    made = ObservedClient()
    yield made
    made.heal()
    await made.close()


class Sink:
    def __init__(self):
        self.changed, self.gone, self.durable = [], [], True

    def on_held_change(self, number, record):
        self.changed.append((number, record))

    def on_held_release(self, number, record):
        self.on_held_gone(number, record)

    def on_held_gone(self, number, record):
        if record.is_running:
            self.gone.append((number, record.lanes["lanes"].running))

    def is_held_durable(self, number, record):
        return self.durable


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
def records():
    return RecordReader(ENV)


@pytest.fixture
async def receiver(client, sink, records):
    made = HandoffReceiver(client, ENV, sink, records)
    yield made
    await made.close()


async def put(client, value, held=HELD):
    """Put a record as a live owner does: under a lease while a handler runs."""
    lease = await client.grant(600) if value.is_running else 0
    await client.put(key("held", *held), encode(value), lease)


async def test_records_are_read_by_partition(client, receiver):
    await put(client, record([1]))
    await put(client, record([2]), HandoffId(30, 5))
    await put(client, record([3]), HandoffId(3, 18))
    assert {HELD: record([1]), HandoffId(3, 18): record([3])} == await receiver.read_records(3)


async def test_key_is_deleted_once_its_messages_are_settled(client, receiver, sink):
    """D."""
    sink.durable = False
    await put(client, record([1]))
    receiver.follow(await receiver.read_records(3))
    await put(client, record([], [1]))
    await until(lambda: sink.changed[-1:] == [(3, record([], [1]))])
    assert await held_record(client) is not None
    sink.durable = True
    await until(lambda: _gone(client))
    assert [] == sink.gone


async def test_changes_between_reading_and_following_are_passed_on(client, receiver, sink):
    """Also if handoffs of another partition are followed already."""
    await put(client, record([1]), HandoffId(1, 5))
    receiver.follow(await receiver.read_records(1))
    await until(lambda: sink.changed)
    await put(client, record([1]))
    await put(client, record([2]), HandoffId(3, 18))
    read = await receiver.read_records(3)
    await put(client, record([], [1]))
    await client.delete(key("held", 3, 18))
    await until(lambda: client.has_handled("held", client.store.revision))
    receiver.follow(read)
    await until(lambda: (3, record([], [1])) in sink.changed)
    await until(lambda: sink.gone == [(3, [2])])


async def test_lost_partition_can_be_followed_again(client, receiver, sink):
    await put(client, record([1]))
    receiver.follow(await receiver.read_records(3))
    await until(lambda: sink.changed)
    receiver.discard(3)
    await put(client, record([1], [2]))
    assert 1 == len(sink.changed)
    read = await receiver.read_records(3)
    await client.delete(KEY)
    receiver.follow(read)
    await until(lambda: sink.gone == [(3, [1])])


async def test_lost_watch_hides_no_change(client, receiver, sink):
    """Fault 11."""
    await put(client, record([1]))
    await put(client, record([2]), HandoffId(3, 18))
    receiver.follow(await receiver.read_records(3))
    await until(lambda: sink.changed)
    client.cut()
    other = client.peer()
    await put(other, record([], [1]))
    await other.delete(key("held", 3, 18))
    client.heal()
    await until(lambda: (3, record([], [1])) in sink.changed)
    await until(lambda: sink.gone == [(3, [2])])


async def test_last_record_decides_which_messages_are_released(client, receiver, sink):
    await put(client, record([1, 2, 3]))
    receiver.follow(await receiver.read_records(3))
    await until(lambda: sink.changed)
    await put(client, record([2, 3], [1]))
    await client.txn([], [DeleteKey(KEY)])
    await until(lambda: sink.gone == [(3, [2, 3])])


async def test_message_that_neither_runs_nor_ended_is_released(client, receiver, sink):
    """Its handler never started."""
    await put(client, record([1, 2]))
    receiver.follow(await receiver.read_records(3))
    await until(lambda: sink.changed)
    await put(client, record([1]))
    await until(lambda: sink.gone == [(3, [2])])
    await client.delete(KEY)
    await until(lambda: sink.gone == [(3, [2]), (3, [1])])


async def test_record_without_lease_has_no_running_handlers(client, receiver, sink):
    """L: it was put by hand, or replaced the record of an owner that died since, so no end would be published."""
    await put(client, record([1, 2]))
    receiver.follow(await receiver.read_records(3))
    await until(lambda: sink.changed)
    await client.put(KEY, encode(record([1], [2])))
    await until(lambda: sink.gone == [(3, [1])])
    await until(lambda: _gone(client))


async def test_watch_ends_with_the_last_handoff(client, receiver):
    await put(client, record([1]))
    receiver.follow(await receiver.read_records(3))
    await put(client, record([], [1]))
    await until(lambda: _gone(client))
    await until(lambda: not client.watches)


@pytest.mark.parametrize("name", ["x/y", "3", "3/", "3/x", "/", "3/17/1", "3/017", "3/+17", "٣/17", "3/1_7"])
async def test_invalid_key_is_skipped(client, receiver, sink, name):
    """It isn't taken for the key of another handoff."""
    await client.put(key("held", name), encode(record([7])))
    await put(client, record([1]))
    assert {HELD: record([1])} == await receiver.read_records(3)
    receiver.follow(await receiver.read_records(3))
    await client.put(key("held", name), encode(record([8], [1])))
    await put(client, record([], [1]))
    await until(lambda: (3, record([], [1])) in sink.changed)
    assert (3, record([8], [1])) not in sink.changed
    await until(lambda: _gone(client))


async def test_invalid_value_is_counted_and_changes_nothing(client, receiver, sink, records):
    await put(client, record([1]))
    receiver.follow(await receiver.read_records(3))
    await until(lambda: sink.changed)
    await client.put(KEY, b"\xff")
    await until(lambda: records.skipped)
    await client.delete(KEY)
    await until(lambda: sink.gone == [(3, [1])])


async def _gone(client):
    return await client.get(KEY) is None
