"""The contract of `prepare`, `put` and `now`."""

import asyncio
from time import time_ns

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost, TooLarge
from evenlane.engine.core.wire import headers as h
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, LATER, OTHER


def with_id(text: str) -> bytes:
    return h.encode({h.ID: text})


class PutContract:
    async def test_prepare_is_idempotent(self, world):
        await fill(world, 2)
        await world.second.prepare([LANE, OTHER, LATER])
        assert 2 == (await world.second.state(LANE)).last

    async def test_receipt_has_stream_and_rising_sequence(self, world):
        receipt = await world.store.put(subject(world.env), b"", b"one")
        assert (names.stream(world.env, LANE), 1, False) == receipt
        assert 2 == (await world.second.put(subject(world.env), b"", b"two")).sequence

    async def test_pipelined_puts_are_stored_in_order(self, world):
        assert list(range(1, 201)) == await fill(world, 200)

    async def test_put_then_reports_receipts_and_errors_later(self, world):
        reported, all_published = [], asyncio.Event()

        def answered(answer):
            reported.append(answer)
            if len(reported) == 3:
                all_published.set()

        for text in (b"one", b"two"):
            world.store.put_then(subject(world.env), with_id("acme:1"), text, answered)
        world.store.put_then(subject(world.env), b"", b"x" * (world.store.max_payload + 1), answered)
        assert [] == reported, "never before put_then returns"
        await asyncio.wait_for(all_published.wait(), 60)
        receipts = [answer for answer in reported if not isinstance(answer, TooLarge)]
        assert [(1, False), (1, True)] == [(receipt.sequence, receipt.duplicate) for receipt in receipts]

    async def test_lanes_have_their_own_sequences(self, world):
        await fill(world, 3)
        assert [1] == await fill(world, 1, OTHER)
        assert [1] == await fill(world, 1, LATER, hour=7)

    async def test_repeated_id_is_stored_once(self, world):
        """K6: a producer's retry."""
        first = await world.store.put(subject(world.env), with_id("acme:1"), b"one")
        again = await world.second.put(subject(world.env), with_id("acme:1"), b"one")
        assert (first.sequence, True) == (again.sequence, again.duplicate)
        assert 1 == (await world.store.state(LANE)).last

    async def test_projects_may_use_same_id(self, world):
        """Another project's message is never taken for a duplicate."""
        for project in ("acme", "other"):
            receipt = await world.store.put(
                subject(world.env, project=project), with_id(f"{project}:1"), project.encode()
            )
            assert not receipt.duplicate
        assert [b"acme", b"other"] == [message.body for message in await world.store.get(LANE, [1, 2])]

    async def test_id_is_known_only_in_its_stream(self, world):
        for lane in (LANE, OTHER):
            receipt = await world.store.put(subject(world.env, lane), with_id("acme:1"), b"")
            assert not receipt.duplicate

    async def test_message_of_max_payload_is_stored_and_larger_refused(self, world):
        headers = with_id("acme:big")
        room = world.store.max_payload - len(headers)
        await world.store.put(subject(world.env), headers, b"x" * room)
        with pytest.raises(TooLarge, match=str(world.store.max_payload)):
            await world.store.put(subject(world.env), with_id("acme:too"), b"x" * (room + 1))
        assert world.store.is_connected
        assert [2] == await fill(world, 1)

    async def test_put_without_stream_is_lost(self, world):
        """The stream may not exist yet: the producer retries."""
        async with asyncio.timeout(60):
            for nowhere in (f"lanes.{world.env}.99.acme.0.mid", f"lanes.{world.env}.3.acme", "nowhere"):
                with pytest.raises(Lost):
                    await world.store.put(nowhere, b"", b"")

    async def test_cancelled_put_affects_no_other(self, world):
        first = world.store.put(subject(world.env), b"", b"1")
        second = world.store.put(subject(world.env), b"", b"2")
        first.cancel()
        assert 2 == (await second).sequence

    async def test_store_clock_matches_message_times(self, world):
        """Due and expiry times are by the store's clock, which is this machine's here."""
        before = time_ns()
        await fill(world, 1)
        at = (await world.store.state(LANE)).at
        slack = 1_000_000_000
        assert before - slack <= at <= time_ns() + slack
        before = time_ns()
        assert before - slack <= world.store.now() <= time_ns() + slack
