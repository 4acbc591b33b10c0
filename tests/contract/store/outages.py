"""The contract while the store is away, and after it."""

import asyncio

import pytest

from evenlane.engine.core.ports import Lost
from tests.support.store.feeding import feeding, fill, logged, subject
from tests.support.store.harness import LANE
from tests.support.until import until


class OutageContract:
    async def test_everything_asked_while_disconnected_is_lost_within_6_s(self, world):
        await fill(world, 1)
        await world.outage()
        store = world.store
        asked = {
            "put": lambda: store.put(subject(world.env), b"", b""),
            "append_log": lambda: store.append_log(LANE, b"", 0),
            "read_log": lambda: store.read_log(LANE),
            "state": lambda: store.state(LANE),
            "counts": lambda: store.counts(LANE),
            "held": lambda: store.held(LANE, "acme"),
            "get": lambda: store.get(LANE, [1]),
            "scan": lambda: store.scan(LANE, subject(world.env), 1, 1),
            "purge": lambda: store.purge(LANE, 2),
            "delete": lambda: store.delete(LANE, 1),
            "prepare": lambda: store.prepare([LANE]),
        }
        for ask in asked.values():
            async with asyncio.timeout(6):
                with pytest.raises(Lost):
                    await ask()

    async def test_what_is_pending_when_the_connection_goes_is_lost_or_acknowledged(self, world):
        puts = [world.store.put(subject(world.env), b"", b"%d" % n) for n in range(200)]
        await world.outage()
        async with asyncio.timeout(6):
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert all(isinstance(each, Lost | tuple) for each in outcomes)
        await world.back()
        kept = {each.sequence for each in outcomes if isinstance(each, tuple)}
        assert kept <= set(range(1, (await world.store.state(LANE)).last + 1))

    async def test_the_incarnation_grows_and_the_callbacks_are_called(self, world):
        """Identities must be verified again after it."""
        reported = []
        world.store.on_lost.append(lambda: reported.append("lost"))
        world.store.on_back.append(lambda: reported.append("back"))
        before = world.store.incarnation
        await world.outage()
        between = world.store.incarnation
        await world.back()
        await until(lambda: reported == ["lost", "back"], what="a call of each")
        assert before < between < world.store.incarnation

    async def test_what_was_acknowledged_is_there_afterwards(self, world):
        """L."""
        await fill(world, 100)
        position = await world.store.append_log(LANE, b"1", 0)
        before = await world.store.state(LANE)
        await world.outage()
        await world.back()
        assert before == await world.store.state(LANE)
        assert ([b"1"], position) == await logged(world.store, LANE)
        assert [101] == await fill(world, 1)

    async def test_the_identity_survives_when_all_is_purged(self, world):
        await fill(world, 3)
        await world.store.purge(LANE, 4)
        before = await world.store.state(LANE)
        await world.outage()
        await world.back()
        after = await world.store.state(LANE)
        assert (before.created, 4, 3) == after[:3]
        assert after.at in (before.at, 0)

    async def test_a_feed_goes_on_without_loss_and_without_repeat(self, world):
        await fill(world, 50)
        async with feeding(world.store) as taken:
            await taken.got(50)
            await world.outage()
            await world.back()
            await fill(world, 50)
            assert list(range(1, 101)) == await taken.got(100)
            assert {50} == set(taken.breaks)

    async def test_a_feed_repeats_what_on_break_asks_for(self, world):
        await fill(world, 50)
        async with feeding(world.store) as taken:
            await taken.got(50)
            taken.resume_at = lambda _: 41
            await world.outage()
            await world.back()
            assert [*range(1, 51), *range(41, 51)] == await taken.got(60)
            assert 50 == taken.breaks[0]

    async def test_a_feed_waits_for_on_break_until_it_can_tell(self, world):
        """`on_break` asks the store itself, which may be away still."""
        await fill(world, 5)
        async with feeding(world.store) as taken:
            await taken.got(5)
            failed = []

            def not_yet(last: int) -> int:
                if len(failed) < 2:
                    failed.append(last)
                    raise Lost("not verified yet")
                return last + 1

            taken.resume_at = not_yet
            await world.outage()
            await world.back()
            await fill(world, 1)
            assert [1, 2, 3, 4, 5, 6] == await taken.got(6)
            assert [5, 5] == failed

    async def test_a_feed_with_an_end_gets_there_over_an_outage(self, world):
        await fill(world, 2_000)
        async with feeding(world.store, until=2_000) as taken:
            await taken.got(1)
            await world.outage()
            await world.back()
            await asyncio.wait_for(taken.ended.wait(), 30)
            assert list(range(1, 2_001)) == taken.sequences

    async def test_a_feed_closes_while_the_store_is_away(self, world):
        async with feeding(world.store):
            await world.outage()
