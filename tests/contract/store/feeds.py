"""The contract of `feed`: messages of all sizes, in order and without gaps."""

import asyncio

import pytest

from evenlane.engine.core.wire import headers as h
from tests.support.cancelling import cancelled_anywhere
from tests.support.store.feeding import Taken, feeding, fill, subject, whole
from tests.support.store.harness import LANE, LATER, OTHER

_MIXED = 20_000


def size_of(number: int) -> int:
    """0 to 300 bytes, each 1,000th up to 1 MB, each 100th some KB."""
    if number % 1_000 == 999:
        return (number * 7919) % 900_000 + 100_000
    return (number * 7919) % 8_192 if number % 100 == 99 else number % 300


class FeedContract:
    @pytest.mark.parametrize("when", ["while it waits", "as it comes"])
    async def test_close_of_feed_can_be_cancelled_at_each_await(self, world, when):
        """E7: also in the instant in which the feed ends."""

        async def fed():
            feed = world.store.feed(LANE, 1, Taken().sink, Taken().on_break)
            await asyncio.sleep(0)
            await feed.close()

        assert 2 == await cancelled_anywhere(fed, when)

    async def test_feed_delivers_all_fields_of_message(self, world):
        block = h.encode({h.ID: "acme:1"})
        await world.store.put(subject(world.env), block, b"\xff\x00\r\n")
        stored = (await world.store.get(LANE, [1]))[0]
        async with feeding(world.second) as taken:
            await taken.got(1)
        expected = (subject(world.env).encode(), 1, stored.at, block, b"\xff\x00\r\n")
        assert [expected] == taken.messages

    async def test_feed_delivers_new_messages_as_they_are_put(self, world):
        await fill(world, 3)
        async with feeding(world.second, start=4) as taken:
            for number in range(4, 24):
                await fill(world, 1)
                assert list(range(4, number + 1)) == await taken.got(number - 3)

    async def test_sink_is_never_called_inside_feed_or_put(self, world):
        await fill(world, 1)
        taken = Taken()
        async with feeding(world.store, taken=taken):
            assert [] == taken.messages
            await taken.got(1)
            future = world.store.put(subject(world.env), b"", b"")
            assert 1 == len(taken.messages)
            await future

    async def test_feed_ends_at_until(self, world):
        await fill(world, 10)
        assert [1, 2, 3, 4, 5] == await whole(world.store, until=5)
        assert list(range(3, 11)) == await whole(world.store, start=3, until=10)

    async def test_feed_ends_when_last_messages_are_deleted(self, world):
        await fill(world, 10)
        for sequence in (8, 9, 10):
            await world.store.delete(LANE, sequence)
        assert list(range(1, 8)) == await whole(world.store, until=10)
        await fill(world, 3)
        assert list(range(1, 8)) == await whole(world.store, until=10)

    async def test_feed_ends_in_empty_lane_and_beyond_its_end(self, world):
        assert [] == await whole(world.store, until=1)
        await fill(world, 3)
        await world.store.purge(LANE, 4)
        assert [] == await whole(world.store, until=3)
        assert [] == await whole(world.store, start=4, until=3)
        assert [] == await whole(world.store, start=9, until=12)

    @pytest.mark.parametrize(("there", "deleted"), [(0, ()), (10, ()), (10, (9, 10)), (2, (1, 2))])
    async def test_endless_feed_reports_once_that_it_caught_up(self, world, there, deleted):
        await fill(world, there)
        for sequence in deleted:
            await world.store.delete(LANE, sequence)
        async with feeding(world.store) as taken:
            await asyncio.wait_for(taken.ended.wait(), 60)
            assert [n for n in range(1, there + 1) if n not in deleted] == taken.sequences
            taken.ended.clear()
            sequences = await fill(world, 3)
            assert sequences == (await taken.got(there - len(deleted) + 3))[-3:], "and continues"
            assert not taken.ended.is_set()

    async def test_messages_after_until_are_not_delivered(self, world):
        await fill(world, 500)
        async with feeding(world.store, until=500) as taken:
            await fill(world, 500)
            await asyncio.wait_for(taken.ended.wait(), 60)
            assert list(range(1, 501)) == taken.sequences

    async def test_feed_skips_deleted_messages(self, world):
        """E12."""
        await fill(world, 10)
        await world.store.purge(LANE, 3)
        for sequence in (5, 6, 9):
            await world.store.delete(LANE, sequence)
        assert [3, 4, 7, 8, 10] == await whole(world.store, until=10)

    async def test_concurrent_feeds_are_independent(self, world):
        await fill(world, 300)
        await fill(world, 20, OTHER)
        async with feeding(world.store) as one, feeding(world.store, start=200) as two:
            async with feeding(world.second, OTHER) as other:
                assert list(range(1, 21)) == await other.got(20)
            assert list(range(200, 301)) == await two.got(101)
            assert list(range(1, 301)) == await one.got(300)

    async def test_feed_delivers_only_requested_hours(self, world):
        """A message that is due next month isn't delivered."""
        for hour in (5, 6, 7, 5, 7):
            await fill(world, 1, LATER, hour=hour)
        await fill(world, 1, LANE)
        assert [1, 2, 4] == await whole(world.store, LATER, until=5, hours=[5, 6])
        assert [] == await whole(world.store, LATER, until=5, hours=[8])
        async with feeding(world.store, LATER, start=2, hours=[7]) as taken:
            await fill(world, 1, LATER, hour=7)
            assert [3, 5, 6] == await taken.got(3)

    async def test_closed_feed_delivers_nothing(self, world):
        async with feeding(world.store) as taken:
            await fill(world, 1)
            await taken.ended.wait()
            await taken.got(1)
            taken.ended.clear()
            await taken.feed.close()
            await taken.feed.close()
            async with feeding(world.store, start=2) as witness:
                await fill(world, 1)
                await witness.got(1)
            assert ([1], False) == (taken.sequences, taken.ended.is_set())

    async def test_feed_closed_at_once_leaves_nothing_behind(self, world):
        async with feeding(world.store):
            pass
        await fill(world, 1)
        assert [1] == await whole(world.store, until=1)

    async def test_raising_sink_does_not_stop_feed(self, world):
        await fill(world, 5)
        taken = Taken()
        good = taken.sink

        def sink(*message) -> None:
            good(*message)
            if message[1] == 2:
                raise ValueError(message)

        taken.sink = sink
        async with feeding(world.store, taken=taken):
            assert [1, 2, 3, 4, 5] == await taken.got(5)

    async def test_sink_may_be_replaced_while_feed_runs(self, world):
        async with feeding(world.store) as taken:
            await fill(world, 1)
            await taken.got(1)
            other = Taken()
            taken.feed.sink = other.sink
            await fill(world, 1)
            assert ([2], [1]) == (await other.got(1), taken.sequences)

    async def test_disturbed_feed_resumes_where_on_break_says(self, world):
        """No message is lost, and none repeated except from where on_break says."""
        await fill(world, 10)
        async with feeding(world.store) as taken:
            await taken.got(10)
            taken.resume_at = lambda last: last - 1
            taken.feed.disturb("a test")
            await fill(world, 5)
            assert [*range(1, 11), 9, 10, *range(11, 16)] == await taken.got(17)
            assert [10] == taken.breaks

    async def test_feed_of_recreated_stream_resumes_where_on_break_says(self, world):
        await fill(world, 5)
        async with feeding(world.store) as taken:
            await taken.got(5)
            taken.resume_at = lambda _: 1
            await world.replace(LANE)
            await taken.until(lambda: taken.breaks)
            await fill(world, 2)
            assert [1, 2, 3, 4, 5, 1, 2] == await taken.got(7)
            assert {5} == set(taken.breaks)

    async def test_feed_delivers_messages_larger_than_small_pull(self, world):
        """Such a message must stall neither the feed nor later messages."""
        room = world.store.max_payload
        sizes = [10, room, 0, room, room, 10]
        for size in sizes:
            await world.store.put(subject(world.env), b"", b"x" * size)
        async with feeding(world.store) as taken:
            await taken.got(6)
            assert [] == taken.breaks, "as a stalled feed would have"
            assert sizes == [len(message[4]) for message in taken.messages]
        assert [1, 2, 3, 4, 5, 6] == await whole(world.store, until=6)  # in pulls of other sizes

    async def test_feed_delivers_20_000_messages_of_all_sizes_in_order(self, world):
        to = subject(world.env)
        for start in range(0, _MIXED, 500):
            await asyncio.gather(
                *(
                    world.store.put(to, b"", b"%d;" % n + b"x" * min(size_of(n), world.store.max_payload - 8))
                    for n in range(start, start + 500)
                )
            )
        async with feeding(world.second) as taken:
            assert list(range(1, _MIXED + 1)) == await taken.got(_MIXED, timeout=120)
            numbers = [int(message[4].partition(b";")[0]) for message in taken.messages]
            assert list(range(_MIXED)) == numbers
            assert [] == taken.breaks
