"""The contract of `find_since`: a lane's first message that arrived at a time or later."""

from tests.support.store.feeding import fill
from tests.support.store.harness import LANE


class SinceContract:
    async def test_first_message_since_a_time_is_found(self, world):
        """K10: also if earlier ones are gone, and if the very message is."""
        await fill(world, 5)
        times = [each.at for each in await world.store.get(LANE, [1, 2, 3, 4, 5])]
        assert [1, 2, 3, 4, 5] == [await world.store.find_since(LANE, at) for at in times]
        assert 4 == await world.store.find_since(LANE, times[2] + 1)
        await world.store.purge(LANE, 3)
        assert 3 == await world.store.find_since(LANE, times[0])
        await world.store.delete(LANE, 4)
        assert 5 == await world.store.find_since(LANE, times[3])

    async def test_next_message_is_the_first_if_none_is_there(self, world):
        """K10: the lane is empty, or all of its messages arrived before."""
        assert 1 == await world.store.find_since(LANE, 1)
        await fill(world, 3)
        last = (await world.store.get(LANE, [3]))[0]
        assert 4 == await world.store.find_since(LANE, last.at + 1)
        await world.store.purge(LANE, 4)
        assert 4 == await world.store.find_since(LANE, 1)
