"""U2: a record of a newer release stops its partition on this node, and no other."""

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.ownership.handoff_receiver import HandoffReceiver
from evenlane.engine.cluster.ownership.owner_keys import OwnerKeys
from evenlane.engine.cluster.ownership.unreadable_recheck import UnreadableRecheck
from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import PutKey
from evenlane.ring.membership.records import ETCD_RECORDS, SETTLE_LOG, EpochRecord, Unreadable, encode
from tests.support.membership_cluster import ENV, RecordingHost, key
from tests.support.until import until

LOG, KEY = Unreadable(SETTLE_LOG, 2), Unreadable(ETCD_RECORDS, 2)


def test_several_partitions_are_one_trouble():
    troubles = Troubles()
    records = UnreadableRecords(troubles)
    records.end(3)
    assert {} == troubles.current()
    for partition in (3, 5, 4):
        records.note(partition, LOG, f"reason {partition}")
    assert {"settle_log": "can't take over partition 3 (and 2 partitions more): reason 3"} == troubles.current()
    records.keep_only({4})
    assert {"settle_log": "can't take over partition 4: reason 4"} == troubles.current()
    records.end(4)
    assert {} == troubles.current()


def test_leader_is_informed_until_the_partition_opens():
    """Otherwise it would give the partition back to this node at once."""
    records = UnreadableRecords(Troubles())
    records.note(3, LOG, "reason")
    records.note(4, KEY, "reason")
    records.keep_only(())
    assert {3: LOG, 4: KEY} == records.known
    records.end(3, opened=True)
    assert {4: KEY} == records.known


@pytest.mark.parametrize(
    ("path", "what"), [(("held", 0, 3), "which a previous owner left"), (("epochs", 0), "of its last claim")]
)
@pytest.mark.parametrize("form", ["as known", "unknown"])
async def test_partition_with_a_record_of_a_newer_format_waits(cluster, path, what, form):
    """L, O: what such a record says is unknown, so the partition must not be opened without it."""
    raw = b'{"format": 2, "id": "z", "base": 7}' if form == "as known" else b'{"format": 2, "id": [], "base": "x"}'
    a = await cluster.join("a")
    await cluster.client.put(key(*path), raw)
    with capture_logs() as logs:
        await cluster.plan(a=[0, 1])
        await until(lambda: 1 in a.owned and a.troubles.current())
    sentence = (
        f"{key(*path)} has format 2, and this release reads only 1: run the release that wrote it, or a newer one"
    )
    assert f"can't take over partition 0: {sentence}" in a.troubles.current()["records"], what
    assert {0: KEY} == a.unreadable.known
    assert "a partition waits: a newer release wrote a record" in {each["event"] for each in logs}
    assert [1] == a.owned
    assert raw == (await cluster.client.get(key(*path))).value, "an older release doesn't overwrite it"
    await cluster.client.delete(key(*path))
    await until(lambda: 0 in a.owned)
    assert ({}, [], []) == (a.troubles.current(), a.lost, a.fatal)


@pytest.mark.parametrize("path", [("held", 0, 3), ("epochs", 0)])
async def test_waiting_partition_can_go_to_another_node(cluster, path):
    """The leader gives it to a node that reads the record; here, the record has gone meanwhile."""
    a, b = await cluster.join("a", "b")
    await cluster.client.put(key(*path), b'{"format": 2}')
    await cluster.plan(a=[0, 1])
    await until(lambda: 1 in a.owned and a.troubles.current())
    await cluster.client.delete(key(*path))
    await cluster.own(a=[1], b=[0])
    assert ({}, {}) == (a.troubles.current(), b.troubles.current())
    await until(lambda: {} == a.unreadable.known)


async def test_partition_that_another_node_has_opened_stays_known_while_it_cant_be_read(cluster):
    """U2: the other one may be of a newer release. Otherwise the leader would move the partition to and fro."""
    a, b = await cluster.join("a", "b")
    a.host.logs = dict.fromkeys((0, 2), msgspec.msgpack.encode([3, 7, 1]))
    for partition in (0, 2, 3):
        a.unreadable.note(partition, LOG, "reason")
    await cluster.own(a=[1], b=[0, 3])
    await until(lambda: 3 not in a.unreadable.known)
    assert {0: LOG, 2: LOG} == a.unreadable.known
    del a.host.logs[0]
    await cluster.own(a=[0, 1], b=[3])
    await cluster.own(a=[1], b=[0, 2, 3])
    await until(lambda: b.owned == [0, 2, 3])
    assert {2: LOG} == a.unreadable.known


async def test_records_that_become_readable_without_a_new_owner_are_found():
    """U2: an owner deletes handoff records and replaces settle logs while it serves."""
    records, coordination = UnreadableRecords(Troubles()), MemoryCoordination()
    reader = RecordReader(ENV)
    keys = OwnerKeys(coordination, ENV, "a", 1, reader, asyncio.Semaphore())
    host = RecordingHost(None, "a")
    receiver = HandoffReceiver(coordination, ENV, host, reader)
    recheck = asyncio.create_task(UnreadableRecheck(records, keys, receiver, host, recheck_s=0.001).run())
    await coordination.put(key("held", 0, 3), b'{"format": 2}')
    records.note(0, KEY, "reason")
    records.note(1, KEY, "reason")
    records.keep_only([1])
    await coordination.put(key("held", 2, 3), b'{"format": 2}')
    records.note(2, KEY, "reason")
    records.keep_only([1])
    await coordination.delete(key("held", 2, 3))
    await until(lambda: 2 not in records.known)
    assert {0: KEY, 1: KEY} == records.known, "one can't be read, and the node waits for the other"
    await coordination.delete(key("held", 0, 3))
    await until(lambda: {1: KEY} == records.known)
    recheck.cancel()


async def test_owner_key_of_a_newer_format_is_respected(cluster):
    """Z1, O: its lease counts, and the next epoch is above its own one, whose base only `epochs/` says."""
    a = await cluster.join("a")
    lease = await cluster.client.grant(60)
    owner = PutKey(key("owners", 0), b'{"format": 2, "id": []}', lease)
    claim = PutKey(key("epochs", 0), encode(EpochRecord(base=9_000, lease=lease)))
    await cluster.client.txn([], [owner, claim])
    await cluster.plan(a=[0, 1])
    await until(lambda: a.owned)
    assert [1] == a.owned
    await cluster.client.revoke(lease)
    await until(lambda: 0 in a.owned)
    assert a.membership.epochs[0] > 9_000
