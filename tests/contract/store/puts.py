"""The contract of `prepare`, `put` and `now`."""

import asyncio
from time import time_ns

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost, TooLarge
from evenlane.engine.core.wire import headers as h
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, LATER, OTHER
from tests.support.until import until


def with_id(text: str) -> bytes:
    return h.encode({h.ID: text})


class PutContract:
    async def test_preparing_twice_is_fine(self, world):
        await fill(world, 2)
        await world.second.prepare([LANE, OTHER, LATER])
        assert 2 == (await world.second.state(LANE)).last

    async def test_a_receipt_names_stream_and_rising_sequences(self, world):
        receipt = await world.store.put(subject(world.env), b"", b"one")
        assert (names.stream(world.env, LANE), 1, False) == receipt
        assert 2 == (await world.second.put(subject(world.env), b"", b"two")).sequence

    async def test_pipelined_puts_get_their_sequences_in_order(self, world):
        assert list(range(1, 201)) == await fill(world, 200)

    async def test_put_then_tells_receipts_and_errors_later(self, world):
        reported, all_published = [], asyncio.Event()

        def answered(answer):
            reported.append(answer)
            if len(reported) == 3:
                all_published.set()

        for text in (b"one", b"two"):
            world.store.put_then(subject(world.env), with_id("acme:1"), text, answered)
        world.store.put_then(subject(world.env), b"", b"x" * (world.store.max_payload + 1), answered)
        assert [] == reported, "never before it returns"
        await asyncio.wait_for(all_published.wait(), 10)
        receipts = [answer for answer in reported if not isinstance(answer, TooLarge)]
        assert [(1, False), (1, True)] == [(receipt.sequence, receipt.duplicate) for receipt in receipts]

    async def test_put_then_without_a_connection_is_lost_at_once(self, world):
        await world.outage()
        with pytest.raises(Lost):
            world.store.put_then(subject(world.env), b"", b"x", lambda _: None)
        await world.back()
        reported = asyncio.get_running_loop().create_future()
        world.store.put_then(subject(world.env), b"", b"x", reported.set_result)
        assert 1 == (await reported).sequence

    async def test_put_then_is_lost_when_the_connection_goes(self, world):
        reported = []
        for number in range(200):
            world.store.put_then(subject(world.env), b"", b"%d" % number, reported.append)
        await world.outage()
        await until(lambda: len(reported) == 200, timeout=6)
        assert all(isinstance(answer, Lost | tuple) for answer in reported)

    async def test_lanes_count_apart(self, world):
        await fill(world, 3)
        assert [1] == await fill(world, 1, OTHER)
        assert [1] == await fill(world, 1, LATER, hour=7)

    async def test_the_same_id_twice_is_stored_once(self, world):
        """A producer's retry (K6)."""
        first = await world.store.put(subject(world.env), with_id("acme:1"), b"one")
        again = await world.second.put(subject(world.env), with_id("acme:1"), b"one")
        assert (first.sequence, True) == (again.sequence, again.duplicate)
        assert 1 == (await world.store.state(LANE)).last

    async def test_two_projects_may_use_the_same_id(self, world):
        """An id is scoped to its project: another tenant's message is never taken for a duplicate."""
        for project in ("acme", "other"):
            receipt = await world.store.put(
                subject(world.env, project=project), with_id(f"{project}:1"), project.encode()
            )
            assert not receipt.duplicate
        assert [b"acme", b"other"] == [message.body for message in await world.store.get(LANE, [1, 2])]

    async def test_an_id_is_known_in_its_own_stream_only(self, world):
        for lane in (LANE, OTHER):
            receipt = await world.store.put(subject(world.env, lane), with_id("acme:1"), b"")
            assert not receipt.duplicate

    async def test_the_largest_message_goes_through_and_one_byte_more_does_not(self, world):
        headers = with_id("acme:big")
        room = world.store.max_payload - len(headers)
        await world.store.put(subject(world.env), headers, b"x" * room)
        with pytest.raises(TooLarge, match=str(world.store.max_payload)):
            await world.store.put(subject(world.env), with_id("acme:too"), b"x" * (room + 1))
        assert world.store.connected
        assert [2] == await fill(world, 1)

    async def test_a_put_that_no_stream_takes_is_lost(self, world):
        """It may be that the stream isn't there yet: the producer asks again."""
        async with asyncio.timeout(6):
            for nowhere in (f"lanes.{world.env}.99.acme.0.mid", f"lanes.{world.env}.3.acme", "nowhere"):
                with pytest.raises(Lost):
                    await world.store.put(nowhere, b"", b"")

    async def test_dead_letters_have_a_stream_of_their_own(self, world):
        receipt = await world.store.put(names.dead_subject(world.env, "acme"), b"", b"dead")
        assert names.dead_stream(world.env) == receipt.stream
        assert 0 == (await world.store.state(LANE)).last

    async def test_a_cancelled_put_disturbs_no_other(self, world):
        first = world.store.put(subject(world.env), b"", b"1")
        second = world.store.put(subject(world.env), b"", b"2")
        first.cancel()
        assert 2 == (await second).sequence

    async def test_the_clock_is_that_of_the_messages(self, world):
        """Due and expiry go by the store's clock; here it is this machine's."""
        before = time_ns()
        await fill(world, 1)
        at = (await world.store.state(LANE)).at
        slack = 100_000_000
        assert before - slack <= at <= time_ns() + slack
        assert abs(world.store.now() - time_ns()) < slack
