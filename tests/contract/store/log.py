"""The contract of the settle log: guarded appends, checkpoints, each lane's own."""

import msgspec
import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import LogMoved, TooLarge
from evenlane.engine.core.records.settle_record import UnknownVersion
from evenlane.engine.node.settle.settle_log_reader import read_settle_log
from tests.support.store.feeding import fill, logged
from tests.support.store.harness import LANE, LATER, OTHER


class LogContract:
    async def test_empty_log_has_position_zero(self, world):
        assert ([], 0) == await logged(world.store, LANE)

    async def test_log_is_read_in_order_by_any_connection(self, world):
        position = 0
        records = [b"one", b"", b"\x00\xff\r\n"]
        for record in records:
            before, position = position, await world.store.append_log(LANE, record, position)
            assert position > before
        assert (records, position) == await logged(world.second, LANE)

    async def test_append_at_stale_position_is_refused(self, world):
        """O: the settle log refuses a previous owner once the new one has written."""
        position = await world.store.append_log(LANE, b"previous owner", 0)
        newer = await world.second.append_log(LANE, b"new owner", position, checkpoint=True)
        for stale in (0, position, newer + 1):
            with pytest.raises(LogMoved):
                await world.store.append_log(LANE, b"previous owner again", stale)
        assert ([b"new owner"], newer) == await logged(world.store, LANE)

    async def test_stale_checkpoint_replaces_nothing(self, world):
        position = await world.store.append_log(LANE, b"1", 0)
        position = await world.store.append_log(LANE, b"2", position)
        with pytest.raises(LogMoved):
            await world.second.append_log(LANE, b"stale", 0, checkpoint=True)
        assert ([b"1", b"2"], position) == await logged(world.store, LANE)

    async def test_checkpoint_replaces_earlier_records(self, world):
        position = 0
        for number in range(5):
            position = await world.store.append_log(LANE, b"%d" % number, position)
        position = await world.store.append_log(LANE, b"checkpoint", position, checkpoint=True)
        assert ([b"checkpoint"], position) == await logged(world.store, LANE)
        position = await world.store.append_log(LANE, b"after", position)
        assert ([b"checkpoint", b"after"], position) == await logged(world.store, LANE)

    async def test_each_lane_has_its_own_log(self, world):
        one = await world.store.append_log(LANE, b"lane", 0)
        other = await world.store.append_log(OTHER, b"other", 0)
        later = await world.store.append_log(LATER, b"later", 0, checkpoint=True)
        assert ([b"lane"], one) == await logged(world.store, LANE)
        assert ([b"other"], other) == await logged(world.store, OTHER)
        assert ([b"later"], later) == await logged(world.store, LATER)
        await world.store.append_log(LANE, b"more", one)

    async def test_last_record_of_another_cluster(self, world):
        """K10: what another subscription has settled is read from its log; a log that isn't there settles nothing."""
        assert await world.store.read_last_record(LANE, f"{world.env}_audit") is None
        assert await world.store.read_last_record(LANE, world.env) is None
        position = await world.store.append_log(LANE, b"1", 0)
        await world.store.append_log(OTHER, b"other", 0)
        position = await world.store.append_log(LANE, b"2", position, checkpoint=True)
        assert b"2" == await world.second.read_last_record(LANE, world.env)
        await world.store.append_log(LANE, b"3", position)
        assert b"3" == await world.second.read_last_record(LANE, world.env)

    async def test_records_of_another_cluster(self, world):
        """K10: all of them, oldest first, however large they are together."""
        assert [] == await world.second.read_records(LANE, f"{world.env}_audit")
        assert [] == await world.second.read_records(LANE, world.env)
        position = await world.store.append_log(LANE, b"gone", 0)
        position = await world.store.append_log(LANE, large := b"x" * 900_000, position, checkpoint=True)
        await world.store.append_log(OTHER, b"other", 0)
        position = await world.store.append_log(LANE, large, position)
        await world.store.append_log(LANE, b"3", position)
        assert [large, large, b"3"] == await world.second.read_records(LANE, world.env)

    async def test_log_of_100_records_is_read_completely(self, world):
        position = await world.store.append_log(LANE, b"c", 0, checkpoint=True)
        for number in range(100):
            position = await world.store.append_log(LANE, b"%d" % number, position)
        records, _ = await logged(world.second, LANE)
        assert [b"c", *(b"%d" % number for number in range(100))] == records

    async def test_too_large_log_record_is_refused(self, world):
        with pytest.raises(TooLarge):
            await world.store.append_log(LANE, b"x" * (world.store.max_payload + 1), 0)
        assert world.store.is_connected
        assert ([], 0) == await logged(world.store, LANE)

    async def test_unreadable_log_record_error_names_its_place(self, world):
        """F4: so that an operator can find and delete it."""
        position = await world.store.append_log(LANE, b"\xc1", 0)
        position = await world.store.append_log(LANE, msgspec.msgpack.encode([3, 9, 1]), position)
        with pytest.raises(UnknownVersion, match=f"stream {names.settled_stream(world.env)}, sequence {position}"):
            await read_settle_log(world.second, LANE)

    async def test_log_survives_recreated_lane(self, world):
        """The log tells a new owner that the stream was replaced."""
        await fill(world, 3)
        position = await world.store.append_log(LANE, b"1", 0)
        await world.replace(LANE)
        assert ([b"1"], position) == await logged(world.store, LANE)
