"""Reads of JetStream: the number of requests, lagging replicas, and incomplete responses."""

import asyncio

import msgspec
import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Disconnected, LogMoved, Lost
from evenlane.engine.core.records.settle_record import UnknownVersion
from evenlane.engine.node.settle.settle_log_reader import read_settle_log
from evenlane.engine.store.jetstream.api.values import MessageAnswer
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.client.replies import Reply
from evenlane.engine.store.jetstream.reads import Reads
from tests.support.store.feeding import fill, logged, subject
from tests.support.store.harness import LANE

pytestmark = pytest.mark.real

END = Reply(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n", b"")


class FaultyConnection:
    """A connection on which responses of several messages pass `change`, and the leader is `ahead` of its replicas."""

    def __init__(self, inner, change, ahead=0):
        self._inner, self._change, self._ahead = inner, change, ahead

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def ask_all(self, *request):
        return self._change(await self._inner.ask_all(*request))

    async def api_as(self, kind, verb, request):
        answer = await self._inner.api_as(kind, verb, request)
        if kind is MessageAnswer and "last_by_subj" in request:
            answer.message = msgspec.structs.replace(answer.message, seq=answer.message.seq + self._ahead)
        return answer


async def nothing(_lanes):
    pass


def reads_on(world, connection):
    return Reads(connection, world.env, nothing)


async def append(world, *records):
    position = 0
    for record in records:
        position = await world.store.append_log(LANE, record, position)
    return position


async def bodies(reads):
    records, position = await reads.log(LANE)
    return [record.body for record in records], position


# ---- requests


async def test_long_log_is_read_by_two_requests(world):
    """Z6: a takeover reads the logs of many partitions at once."""
    records = [b"%d" % number for number in range(90)]
    position = await append(world, *records)
    async with world.connected() as connection:
        reads = reads_on(world, connection)
        reads.note_replicas(names.settled_stream(world.env), 1)
        before = connection.asked
        assert (records, position) == await bodies(reads)
        assert connection.asked - before == 2


async def test_small_queue_is_scanned_by_one_request(world):
    """E14: a takeover scans hundreds of queues while the server is busy."""
    await fill(world, 300)
    async with world.connected() as connection:
        reads = reads_on(world, connection)
        reads.note_replicas(names.stream(world.env, LANE), 1)
        before = connection.asked
        assert list(range(1, 301)) == await reads.scan(LANE, subject(world.env), 1, 16_384)
        assert connection.asked - before == 1


async def test_stream_with_replicas_is_scanned_by_consumer(world):
    """E12: a lagging replica would return fewer messages than there are, and a refill relies on them."""
    await fill(world, 3)

    def refuse(_replies):
        raise AssertionError("a replica was asked")

    async with world.connected() as connection:
        reads = reads_on(world, FaultyConnection(connection, refuse))
        reads.note_replicas(names.stream(world.env, LANE), 3)
        assert [1, 2, 3] == await reads.scan(LANE, subject(world.env), 1, 10)


# ---- faults


@pytest.mark.parametrize("missing", [1, 3])
async def test_log_is_complete_though_replica_lags(world, missing):
    """E12: the leader knows the end of a log, and is asked for records that a replica lacks."""
    position = await append(world, b"1", b"2", b"3")

    def lagging(replies):
        return [*replies[: len(replies) - 1 - missing], END]

    async with world.connected() as connection:
        assert ([b"1", b"2", b"3"], position) == await bodies(reads_on(world, FaultyConnection(connection, lagging)))


async def test_incomplete_log_is_lost(world):
    """E12, X11: after a gap in a response, or if the replica that scans lags as well, the takeover starts again."""
    await append(world, b"1", b"2", b"3")

    def with_a_gap(replies):
        return [replies[0], *replies[2:]]

    async with world.connected() as connection:
        with pytest.raises(Lost, match="missing"):
            await reads_on(world, FaultyConnection(connection, with_a_gap)).log(LANE)
        with pytest.raises(Lost, match="lags"):
            await reads_on(world, FaultyConnection(connection, lambda _: [END], ahead=1)).log(LANE)


async def test_response_cut_off_by_close_is_disconnected(nats_server):
    connection = Connection(NatsOptions((nats_server.url,)), "test")
    await connection.open()
    connection.listen("silent", lambda *_: None)
    waiting = asyncio.ensure_future(connection.ask_all("silent", b""))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(Disconnected):
        await waiting


async def test_foreign_log_record_can_be_deleted(world):
    """F4: as the error tells an operator; the log then continues after its last record."""
    first = await append(world, b"1")
    foreign = (await world.store.put(names.settled_subject(world.env, LANE), b"", b"\x93\x03\x09\x01")).sequence
    stream = names.settled_stream(world.env)
    with pytest.raises(UnknownVersion, match=f"delete it: `nats stream rmm {stream} {foreign}`"):
        await read_settle_log(world.store, LANE)
    with pytest.raises(LogMoved):
        await world.store.append_log(LANE, b"2", first)
    await world.api(f"STREAM.MSG.DELETE.{stream}", {"seq": foreign})
    assert (1, first) == ((log := await read_settle_log(world.store, LANE)).state.unreadable, log.position)
    second = await world.store.append_log(LANE, b"2", first)
    assert ([b"1", b"2"], second) == await logged(world.store, LANE)
