"""The contract of the stream of dead letters: read like a lane, and kept for a configured time (K4)."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Refused
from evenlane.engine.core.wire import headers as h
from tests.support.until import until

DAY = 86_400


async def bury(world, count: int, project: str = "acme") -> list[int]:
    to = names.dead_subject(world.env, project)
    receipts = await asyncio.gather(*(world.store.put(to, h.encode({"N": str(n)}), b"%d" % n) for n in range(count)))
    assert {names.dead_stream(world.env)} == {receipt.stream for receipt in receipts}
    return [receipt.sequence for receipt in receipts]


class DeadLetterContract:
    async def test_dead_letters_are_read_counted_and_deleted_like_a_lane(self, world):
        await bury(world, 3)
        await bury(world, 2, "other")
        mine, others = (names.dead_subject(world.env, project) for project in ("acme", "other"))
        assert {mine: 3, others: 2} == await world.second.counts(names.DEAD)
        assert [4, 5] == await world.second.scan(names.DEAD, others, 1, 10)
        assert [(4, 1), (5, 1)] == [
            (head.sequence, head.size) for head in await world.store.heads(names.DEAD, others, 1, 10)
        ]
        await world.store.delete(names.DEAD, 2)
        assert [b"0", None, b"2"] == [each and each.body for each in await world.store.get(names.DEAD, [1, 2, 3])]
        assert (1, 5) == (await world.store.state(names.DEAD))[1:3]

    async def test_dead_letter_stream_is_prepared_with_or_without_lanes(self, world):
        await world.store.prepare([names.DEAD])
        await world.second.prepare([])
        assert [1] == await bury(world, 1)

    async def test_dead_letters_are_kept_30_days_unless_changed(self, world):
        assert 30 * DAY == await world.store.dead_letters_kept()
        await world.store.keep_dead_letters(2 * DAY)
        assert 2 * DAY == await world.second.dead_letters_kept()
        await world.second.prepare([])
        assert 2 * DAY == await world.store.dead_letters_kept()

    async def test_retention_below_duplicate_window_is_refused(self, world):
        with pytest.raises(Refused, match="duplicate window"):
            await world.store.keep_dead_letters(29)
        assert 30 * DAY == await world.store.dead_letters_kept()


async def check_expiry(world) -> None:
    """In a world with a duplicate window of a second: dead letters older than the configured time are removed."""
    await bury(world, 3)
    await world.store.keep_dead_letters(1)

    async def gone() -> bool:
        return await world.store.counts(names.DEAD) == {}

    await until(gone, what="the dead letters to be gone")
    await world.store.keep_dead_letters(DAY)
    assert [4] == await bury(world, 1)
    assert 1 == len(await world.store.counts(names.DEAD))
