"""The contract of `busy`: the last in-flight record of each process (X11)."""

import asyncio

import pytest

from evenlane.engine.base.names import BUSY, busy_subject
from evenlane.engine.core.ports import TooLarge
from tests.support.store.feeding import subject
from tests.support.store.harness import LANE


async def bodies(store):
    return sorted(record.body for record in await store.busy())


async def arrival(world):
    """The arrival time of a message that is put now."""
    receipt = await world.store.put(subject(world.env), b"", b"x")
    (stored,) = await world.store.get(LANE, [receipt.sequence])
    return stored.at


class BusyContract:
    async def test_busy_is_empty_without_records(self, world):
        assert [] == await bodies(world.store)

    async def test_busy_returns_last_record_of_each_process(self, world):
        for n in range(5):
            for process in ("a", "b"):
                await world.store.put(busy_subject(world.env, process), b"", b"%s %d" % (process.encode(), n))
        assert [b"a 4", b"b 4"] == await bodies(world.second)

    async def test_record_has_its_arrival_time(self, world):
        """X11: by the clock of the messages, to tell them from later ones with the same sequences."""
        found = []
        for n in range(3):
            before = await arrival(world)
            await world.store.put(busy_subject(world.env, "a"), b"", b"%d" % n)
            (record,) = await world.store.busy()
            assert before <= record.at <= await arrival(world)
            found.append(record.at)
        assert found == sorted(set(found))

    async def test_record_may_be_any_bytes_or_empty(self, world):
        some = [b"", b"\x00\xff\r\n", b"\xc1" * 3, b"x" * 100_000]
        for n, body in enumerate(some):
            await world.store.put(busy_subject(world.env, f"p{n}"), b"", body)
        assert sorted(some) == await bodies(world.store)

    async def test_busy_returns_records_of_hundreds_of_processes(self, world):
        """A cluster that has been restarted often."""
        await asyncio.gather(*(world.store.put(busy_subject(world.env, f"p{n}"), b"", b"%d" % n) for n in range(400)))
        assert {b"%d" % n for n in range(400)} == set(await bodies(world.second))

    async def test_only_last_record_takes_up_room(self, world):
        """M: with a thousand records per second, the stream must not grow."""
        for n in range(50):
            await world.store.put(busy_subject(world.env, "a"), b"", b"%d" % n)
        assert [b"49"] == await bodies(world.store)
        assert {busy_subject(world.env, "a"): 1} == await world.store.counts(BUSY)

    async def test_acknowledged_record_is_visible_to_other_connections(self, world):
        """X11: at the same moment."""
        for n in range(30):
            await world.store.put(busy_subject(world.env, "a"), b"", b"%d" % n)
            assert [b"%d" % n] == await bodies(world.second)

    async def test_too_large_record_is_refused_and_last_one_stays(self, world):
        await world.store.put(busy_subject(world.env, "a"), b"", b"1")
        with pytest.raises(TooLarge):
            await world.store.put(busy_subject(world.env, "a"), b"", b"x" * (world.store.max_payload + 1))
        assert [b"1"] == await bodies(world.store)
