"""The demo's ledger: waiting messages are read from streams and settle log, and lost messages are found."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.settled_set import runs
from evenlane.engine.core.records import settle_record
from evenlane.engine.core.wire.headers import ID, encode
from evenlane.engine.core.wire.varint_runs import pack_runs
from evenlane.engine.proof.broker.environment import lanes
from evenlane.engine.proof.demo.ledger import Ledger, find_waiting
from tests.support.store.harness import MemoryStoreHarness

PARTITIONS = 2


@pytest.fixture
async def world():
    world = await MemoryStoreHarness().open()
    await world.store.prepare(lanes(PARTITIONS))
    yield world
    await world.close()


async def put(world, partition, numbers):
    subject = names.lane_subject(world.env, partition, "acme", 0, "mid")
    for number in numbers:
        await world.store.put(subject, encode({ID: f"acme:{number}"}), b"%d" % number)


async def settle(world, partition, watermark, above):
    lane = LaneId("lanes", partition)
    packed = pack_runs(runs(above), watermark)
    record = settle_record.SettleRecord(
        settle_record.VERSION, 1, 1, (await world.store.state(lane)).created, 9, 0, watermark, packed
    )
    await world.store.append_log(lane, settle_record.encode(record), 0)


async def test_stored_messages_that_are_not_settled_wait(world):
    await put(world, 0, range(100, 106))  # sequences 1 to 6
    await put(world, 1, range(200, 203))
    assert {*range(100, 106), *range(200, 203)} == await find_waiting(world.store, PARTITIONS)
    await settle(world, 0, 2, [4])
    assert {102, 104, 105, 200, 201, 202} == await find_waiting(world.store, PARTITIONS)
    await world.store.delete(LaneId("lanes", 0), 5)
    await world.store.purge(LaneId("lanes", 1), 3)
    assert {102, 105, 202} == await find_waiting(world.store, PARTITIONS)


def test_message_in_no_state_is_lost():
    ledger = Ledger.of(put={1, 2, 3, 4, 5}, handled={1, 2}, dead={3}, left={4}, duplicates=1)
    assert {"put": 5, "handled": 2, "duplicates": 1, "dead": 1, "waiting": 1, "lost": 1} == ledger.document()


def test_message_counted_twice_does_not_hide_a_lost_one():
    assert 1 == Ledger.of(put={1, 2, 3}, handled={1, 2}, dead=set(), left={2}).lost
