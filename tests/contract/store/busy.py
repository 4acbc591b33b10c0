"""The contract of `busy`: of each process that has written an in-flight record, the last one (X11)."""

import asyncio

import pytest

from evenlane.engine.base.names import BUSY, busy_subject
from evenlane.engine.core.ports import TooLarge
from tests.support.store.feeding import subject
from tests.support.store.harness import LANE


async def bodies(store):
    return sorted(record.body for record in await store.busy())


async def arrival(world):
    """Of a message that is put now."""
    receipt = await world.store.put(subject(world.env), b"", b"x")
    (stored,) = await world.store.get(LANE, [receipt.sequence])
    return stored.at


class BusyContract:
    async def test_where_nobody_has_written_there_is_none(self, world):
        assert [] == await bodies(world.store)

    async def test_the_last_record_of_each(self, world):
        for n in range(5):
            for process in ("a", "b"):
                await world.store.put(busy_subject(world.env, process), b"", b"%s %d" % (process.encode(), n))
        assert [b"a 4", b"b 4"] == await bodies(world.second)

    async def test_when_the_last_one_arrived(self, world):
        """X11: by the clock that messages are stamped with; it tells them from what took their sequences later."""
        found = []
        for n in range(3):
            before = await arrival(world)
            await world.store.put(busy_subject(world.env, "a"), b"", b"%d" % n)
            (record,) = await world.store.busy()
            assert before <= record.at <= await arrival(world)
            found.append(record.at)
        assert found == sorted(set(found))

    async def test_any_bytes_and_none(self, world):
        some = [b"", b"\x00\xff\r\n", b"\xc1" * 3, b"x" * 100_000]
        for n, body in enumerate(some):
            await world.store.put(busy_subject(world.env, f"p{n}"), b"", body)
        assert sorted(some) == await bodies(world.store)

    async def test_of_hundreds_of_processes(self, world):
        """Of a cluster that has been restarted often."""
        await asyncio.gather(*(world.store.put(busy_subject(world.env, f"p{n}"), b"", b"%d" % n) for n in range(400)))
        assert {b"%d" % n for n in range(400)} == set(await bodies(world.second))

    async def test_no_record_takes_up_room_that_is_not_the_last(self, world):
        """M: written a thousand times a second, it must not grow."""
        for n in range(50):
            await world.store.put(busy_subject(world.env, "a"), b"", b"%d" % n)
        assert [b"49"] == await bodies(world.store)
        assert {busy_subject(world.env, "a"): 1} == await world.store.counts(BUSY)

    async def test_an_acknowledged_one_is_there_for_whoever_asks_next(self, world):
        """X11: by another connection, at the same moment."""
        for n in range(30):
            await world.store.put(busy_subject(world.env, "a"), b"", b"%d" % n)
            assert [b"%d" % n] == await bodies(world.second)

    async def test_one_above_the_limit_is_refused_and_the_last_one_stays(self, world):
        await world.store.put(busy_subject(world.env, "a"), b"", b"1")
        with pytest.raises(TooLarge):
            await world.store.put(busy_subject(world.env, "a"), b"", b"x" * (world.store.max_payload + 1))
        assert [b"1"] == await bodies(world.store)

    async def test_it_outlives_an_outage(self, world):
        """X11: the process is dead, and the server was as well."""
        await world.store.put(busy_subject(world.env, "a"), b"", b"1")
        await world.outage()
        await world.back()
        assert [b"1"] == await bodies(world.second)
