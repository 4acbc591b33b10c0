"""The contract while the store is disconnected, and afterwards."""

import asyncio

import pytest

from evenlane.engine.base.names import busy_subject
from evenlane.engine.core.ports import Lost
from tests.support.store.feeding import Taken, feeding, fill, logged, subject
from tests.support.store.harness import LANE, OTHER
from tests.support.until import until


class OutageContract:
    async def test_requests_while_disconnected_are_lost_within_6_s(self, world):
        await fill(world, 1)
        await world.outage()
        store = world.store
        requests = {
            "put": lambda: store.put(subject(world.env), b"", b""),
            "put_then": lambda: store.put_then(subject(world.env), b"", b"", lambda _: None),
            "append_log": lambda: store.append_log(LANE, b"", 0),
            "read_log": lambda: store.read_log(LANE),
            "state": lambda: store.state(LANE),
            "counts": lambda: store.counts(LANE),
            "held": lambda: store.count_by_subject(LANE, "acme"),
            "get": lambda: store.get(LANE, [1]),
            "scan": lambda: store.scan(LANE, subject(world.env), 1, 1),
            "purge": lambda: store.purge(LANE, 2),
            "delete": lambda: store.delete(LANE, 1),
            "prepare": lambda: store.prepare([LANE]),
        }
        for request in requests.values():
            async with asyncio.timeout(6):
                with pytest.raises(Lost):
                    await request()

    async def test_pending_puts_are_lost_or_acknowledged_when_connection_is_lost(self, world):
        puts = [world.store.put(subject(world.env), b"", b"%d" % n) for n in range(100)]
        reported = []
        for number in range(100):
            world.store.put_then(subject(world.env), b"", b"%d" % number, reported.append)
        await world.outage()
        async with asyncio.timeout(60):
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
        await until(lambda: len(reported) == 100)
        assert all(isinstance(each, Lost | tuple) for each in outcomes + reported)
        await world.back()
        acknowledged = {each.sequence for each in outcomes + reported if isinstance(each, tuple)}
        assert acknowledged <= set(range(1, (await world.store.state(LANE)).last + 1))

    async def test_outage_raises_incarnation_and_calls_callbacks(self, world):
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

    async def test_acknowledged_writes_survive_outage(self, world):
        """L: messages, the settle log, and the identity of a purged lane. X11: in-flight records."""
        await fill(world, 100)
        position = await world.store.append_log(LANE, b"1", 0)
        await world.store.put(busy_subject(world.env, "a"), b"", b"7")
        await fill(world, 3, OTHER)
        await world.store.purge(OTHER, 4)
        lane, purged = await world.store.state(LANE), await world.store.state(OTHER)
        await world.outage()
        await world.back()
        assert lane == await world.store.state(LANE)
        assert ([b"1"], position) == await logged(world.store, LANE)
        assert [b"7"] == [record.body for record in await world.second.busy()]
        assert [101] == await fill(world, 1)
        after = await world.store.state(OTHER)
        assert (purged.created, 4, 3) == after[:3]
        assert after.at in (purged.at, 0)

    async def test_feeds_resume_after_outage_where_on_break_says(self, world):
        """No message is lost, and none repeated except from where on_break says; it is called again after Lost."""
        await fill(world, 50)
        plain, repeating, unverified, failed = Taken(), Taken(), Taken(), []

        def not_yet(last: int) -> int:
            if len(failed) < 2:
                failed.append(last)
                raise Lost("not verified yet")
            return last + 1

        repeating.resume_at = lambda last: 41 if last == 50 else last + 1
        unverified.resume_at = not_yet
        async with (
            feeding(world.store, taken=plain),
            feeding(world.store, taken=repeating),
            feeding(world.store, taken=unverified),
        ):
            for each in (plain, repeating, unverified):
                await each.got(50)
            await world.outage()
            await world.back()
            await fill(world, 50)
            assert list(range(1, 101)) == await plain.got(100)
            assert {50} == set(plain.breaks)
            assert [*range(1, 51), *range(41, 101)] == await repeating.got(110)
            assert 50 == repeating.breaks[0]
            assert list(range(1, 101)) == await unverified.got(100)
            assert [50, 50] == failed

    async def test_feed_with_end_reaches_it_over_outage(self, world):
        await fill(world, 2_000)
        async with feeding(world.store, until=2_000) as taken:
            await taken.got(1)
            await world.outage()
            await world.back()
            await asyncio.wait_for(taken.ended.wait(), 60)
            assert list(range(1, 2_001)) == taken.sequences

    async def test_feed_closes_while_store_is_disconnected(self, world):
        async with feeding(world.store):
            await world.outage()
