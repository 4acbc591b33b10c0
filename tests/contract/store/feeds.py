"""The contract of `feed`: in order, without gaps, whatever the sizes."""

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
    async def test_who_closes_it_is_cancelled_even_in_the_instant_in_which_it_ends(self, world, when):
        """E7."""

        async def fed():
            feed = world.store.feed(LANE, 1, Taken().sink, Taken().on_break)
            await asyncio.sleep(0)
            await feed.close()

        assert 2 == await cancelled_anywhere(fed, when)

    async def test_from_the_start_with_all_that_belongs_to_a_message(self, world):
        block = h.encode({h.ID: "acme:1"})
        await world.store.put(subject(world.env), block, b"\xff\x00\r\n")
        stored = (await world.store.get(LANE, [1]))[0]
        async with feeding(world.second) as taken:
            await taken.got(1)
        expected = (subject(world.env).encode(), 1, stored.at, block, b"\xff\x00\r\n")
        assert [expected] == taken.messages

    async def test_from_the_middle(self, world):
        await fill(world, 10)
        async with feeding(world.store, start=7) as taken:
            assert [7, 8, 9, 10] == await taken.got(4)

    async def test_the_live_tail_comes_as_it_is_put(self, world):
        await fill(world, 3)
        async with feeding(world.second, start=4) as taken:
            for number in range(4, 24):
                await fill(world, 1)
                assert list(range(4, number + 1)) == await taken.got(number - 3)

    async def test_the_sink_is_never_called_from_within_feed_or_put(self, world):
        await fill(world, 1)
        taken = Taken()
        async with feeding(world.store, taken=taken):
            assert [] == taken.messages
            await taken.got(1)
            future = world.store.put(subject(world.env), b"", b"")
            assert 1 == len(taken.messages)
            await future

    async def test_until_ends_there_and_says_so(self, world):
        await fill(world, 10)
        assert [1, 2, 3, 4, 5] == await whole(world.store, until=5)
        assert list(range(3, 11)) == await whole(world.store, start=3, until=10)

    async def test_until_ends_also_where_the_last_ones_are_deleted(self, world):
        await fill(world, 10)
        for sequence in (8, 9, 10):
            await world.store.delete(LANE, sequence)
        assert list(range(1, 8)) == await whole(world.store, until=10)
        await fill(world, 3)
        assert list(range(1, 8)) == await whole(world.store, until=10)

    async def test_until_ends_in_an_empty_lane_and_behind_the_end(self, world):
        assert [] == await whole(world.store, until=1)
        await fill(world, 3)
        await world.store.purge(LANE, 4)
        assert [] == await whole(world.store, until=3)
        assert [] == await whole(world.store, start=4, until=3)
        assert [] == await whole(world.store, start=9, until=12)

    @pytest.mark.parametrize(("there", "deleted"), [(0, ()), (10, ()), (10, (9, 10)), (2, (1, 2))])
    async def test_without_an_end_it_says_once_when_all_there_was_has_come_in(self, world, there, deleted):
        await fill(world, there)
        for sequence in deleted:
            await world.store.delete(LANE, sequence)
        async with feeding(world.store) as taken:
            await asyncio.wait_for(taken.ended.wait(), 30)
            assert [n for n in range(1, there + 1) if n not in deleted] == taken.sequences
            taken.ended.clear()
            sequences = await fill(world, 3)
            assert sequences == (await taken.got(there - len(deleted) + 3))[-3:], "and goes on"
            assert not taken.ended.is_set()

    async def test_messages_that_come_behind_the_end_are_not_delivered(self, world):
        await fill(world, 500)
        async with feeding(world.store, until=500) as taken:
            await fill(world, 500)
            await asyncio.wait_for(taken.ended.wait(), 30)
            assert list(range(1, 501)) == taken.sequences

    async def test_it_jumps_over_what_is_deleted(self, world):
        """E12."""
        await fill(world, 10)
        await world.store.purge(LANE, 3)
        for sequence in (5, 6, 9):
            await world.store.delete(LANE, sequence)
        assert [3, 4, 7, 8, 10] == await whole(world.store, until=10)

    async def test_two_feeds_do_not_disturb_each_other(self, world):
        await fill(world, 300)
        await fill(world, 20, OTHER)
        async with feeding(world.store) as one, feeding(world.store, start=200) as two:
            async with feeding(world.second, OTHER) as other:
                assert list(range(1, 21)) == await other.got(20)
            assert list(range(200, 301)) == await two.got(101)
            assert list(range(1, 301)) == await one.got(300)

    async def test_only_hours_that_were_asked_for(self, world):
        """A message that is due next month is not even fed."""
        for hour in (5, 6, 7, 5, 7):
            await fill(world, 1, LATER, hour=hour)
        await fill(world, 1, LANE)
        assert [1, 2, 4] == await whole(world.store, LATER, until=5, hours=[5, 6])
        assert [] == await whole(world.store, LATER, until=5, hours=[8])
        async with feeding(world.store, LATER, start=2, hours=[7]) as taken:
            await fill(world, 1, LATER, hour=7)
            assert [3, 5, 6] == await taken.got(3)

    async def test_a_closed_feed_delivers_no_more_and_ends_no_more(self, world):
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

    async def test_a_feed_closed_at_once_leaves_nothing_behind(self, world):
        async with feeding(world.store):
            pass
        await fill(world, 1)
        assert [1] == await whole(world.store, until=1)

    async def test_a_sink_that_raises_stops_nothing(self, world):
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

    async def test_the_sink_may_be_exchanged_while_it_runs(self, world):
        async with feeding(world.store) as taken:
            await fill(world, 1)
            await taken.got(1)
            other = Taken()
            taken.feed.sink = other.sink
            await fill(world, 1)
            assert ([2], [1]) == (await other.got(1), taken.sequences)

    async def test_a_disturbed_feed_asks_where_to_go_on(self, world):
        """Without loss, and without repeat beyond what on_break asked for."""
        await fill(world, 10)
        async with feeding(world.store) as taken:
            await taken.got(10)
            taken.resume_at = lambda last: last - 1
            taken.feed.disturb("a test")
            await fill(world, 5)
            assert [*range(1, 11), 9, 10, *range(11, 16)] == await taken.got(17)
            assert [10] == taken.breaks

    async def test_a_stream_deleted_and_made_anew_is_fed_from_where_on_break_says(self, world):
        await fill(world, 5)
        async with feeding(world.store) as taken:
            await taken.got(5)
            taken.resume_at = lambda _: 1
            await world.replace(LANE)
            await taken.until(lambda: taken.breaks)
            await fill(world, 2)
            assert [1, 2, 3, 4, 5, 1, 2] == await taken.got(7)
            assert {5} == set(taken.breaks)

    async def test_messages_larger_than_a_small_pull(self, world):
        """One such message must neither stall the feed nor those behind it."""
        room = world.store.max_payload
        sizes = [10, room, 0, room, room, 10]
        for size in sizes:
            await world.store.put(subject(world.env), b"", b"x" * size)
        async with feeding(world.store) as taken:
            await taken.got(6, timeout=10)
            assert sizes == [len(message[4]) for message in taken.messages]
        assert [1, 2, 3, 4, 5, 6] == await whole(world.store, until=6)  # in pulls of other sizes

    @pytest.mark.timeout(240)
    async def test_20_000_messages_of_all_sizes_in_order_and_without_gaps(self, world):
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
