"""The contract of `unwritable`: streams that the server can't write."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Refused
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, OTHER
from tests.support.until import until


def streams(env: str) -> list[str]:
    return [names.stream(env, LANE), names.stream(env, OTHER), names.settled_stream(env)]


class WritingContract:
    async def test_unwritable_stream_is_reported_until_it_has_room(self, world):
        """F5: only this stream, on each connection; L: acknowledged messages are kept."""
        await fill(world, 3)
        assert {} == await world.store.unwritable(streams(world.env))
        world.fill_disk(LANE)
        put = world.store.put(subject(world.env), b"", b"x" * 200_000)
        found = await until(lambda: world.store.unwritable(streams(world.env)), what="the reason")
        assert [names.stream(world.env, LANE)] == [*found]
        assert found == await world.second.unwritable(streams(world.env))
        [(why, restart)] = found.values()
        assert why.startswith("the server can't write: ")
        assert restart
        assert not put.done()
        with pytest.raises(Refused):
            await world.store.purge(LANE, 2)
        assert [1] == await fill(world, 1, OTHER)
        await world.make_room()
        assert {} == await world.store.unwritable(streams(world.env))
        await asyncio.gather(put, return_exceptions=True)
        assert [1, 2, 3] == [each.sequence for each in await world.store.get(LANE, [1, 2, 3])]
        assert 4 <= (await fill(world, 1))[0]

    async def test_missing_stream_is_not_unwritable(self, world):
        """It is created at the next put."""
        assert {} == await world.store.unwritable([names.stream(world.env, LANE._replace(partition=99))])
