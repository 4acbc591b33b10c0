"""Where a subscription begins: with new messages, with the first that is stored, or at a time (K10)."""

import itertools

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.subscriptions.registry import Subscription
from evenlane.engine.control.subscriptions.start_point import StartPoint, parse_start
from evenlane.engine.core.ports import LaneState
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.subscription_world import CLUSTER, ENV, NAME, Died, Life, SubscriptionWorld

LANE, LATER = LaneId("lanes", 1), LaneId("later", 1)
NOW = 1_790_000_000 * 10**9
FIRST = StartPoint("first", 0)


def since(at):
    return StartPoint("2h", at)


async def times(world):
    """The arrival time of each message of the lane."""
    return [each.at for each in world.server.messages(names.stream(ENV, LANE))]


async def watermarks(world):
    return [(await world.log(lane, CLUSTER))[0].watermark for lane in (LANE, LATER)]


class TestFirstRecord:
    async def test_first_is_the_first_message_that_is_stored(self, world):
        """K10: what others have settled may be gone."""
        await world.put(LANE, 5)
        await world.shared.purge(LANE, 3)
        assert not await world.creation().run([], FIRST)
        assert [2, 0] == await watermarks(world)
        assert 0 == (await world.known())[NAME].due_from

    async def test_time_is_that_of_the_arrival(self, world):
        """K10: everything that was stored at that time or later; of delayed messages, what is due from then on."""
        await world.put(LANE, 5)
        at = (await times(world))[3]
        await world.creation().run([], since(at))
        assert [3, 0] == await watermarks(world)
        assert at == (await world.known())[NAME].due_from

    async def test_time_before_the_first_and_after_the_last(self, world):
        """K10: all that is there, or nothing of it."""
        await world.put(LANE, 5)
        await world.shared.purge(LANE, 3)
        last = (await times(world))[-1]
        await world.creation().run([], since(1))
        assert [2, 0] == await watermarks(world)
        await world.deletion().run()
        await world.creation().run([], since(last + 1))
        assert [5, 0] == await watermarks(world)

    async def test_lane_that_never_had_a_message(self, world):
        """K10: each beginning is the same there."""
        for start in (None, FIRST, since(5)):
            await world.creation().run([], start)
            assert [0, 0] == await watermarks(world)
            await world.deletion().run()


class TestRepeated:
    @pytest.mark.parametrize("after", [False, True])
    async def test_creation_goes_on_where_it_began(self, after):
        """K10: a creator dies at any request; the command is repeated without --from."""
        for most in itertools.count(1):
            world = SubscriptionWorld()
            await world.open()
            await world.put(LANE, 3)
            try:
                await world.creation(life=Life(most, after=after)).run([], FIRST)
            except Died:
                known = await world.known()
                if NAME not in known:
                    await world.creation().run([], FIRST)
                elif known[NAME].state == "creating":
                    await world.creation().run()
            else:
                break
            finally:
                assert [0, 0] == await watermarks(world)
                await world.close()
        assert most > 30

    async def test_same_text_or_time_goes_on(self, world):
        """K10: `2h` is another instant when the command is repeated."""
        await world.register(audit=Subscription(state="creating", since=5, start=7, start_text="2h"))
        await world.creation().run([], StartPoint("2h", 9))
        found = (await world.known())[NAME]
        assert ("active", 7) == (found.state, found.start)
        await world.register(audit=Subscription(state="creating", since=5, start=7, start_text="2h"))
        await world.creation().run([], StartPoint("1970-01-01T00:00:00.000000007Z", 7))

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ({}, "from new"),
            ({"start": 7, "start_text": "2h"}, "from 2h"),
        ],
    )
    async def test_other_beginning_is_refused(self, world, entry, said):
        """K10: one sentence; the registry is as before."""
        await world.register(audit=Subscription(state="creating", since=5, **entry))
        before = await world.revision()
        with pytest.raises(EvenlaneError) as failed:
            await world.creation().run([], FIRST)
        assert str(failed.value) == (
            f"subscription 'audit' of environment 'online' is being created {said}: repeat that without --from, or"
            " delete it first: `evenlane subscriptions delete audit --env online`"
        )
        assert before == await world.revision()


class Removing(MemoryStore):
    """A store whose owner, stopped before the creation, removes a message once the subscription is active."""

    def __init__(self, world):
        super().__init__(world.server, ENV)
        self._world = world

    async def state(self, lane: LaneId) -> LaneState:
        known = await self._world.known()
        if NAME in known and known[NAME].state == "active":
            await self._world.own.purge(LANE, 3)
        return await super().state(lane)


async def test_removal_meanwhile_is_reported(world):
    """K10: the last request of an owner that had been stopped can't be ruled out, but it is noticed."""
    await world.put(LANE, 5)
    world.shared = Removing(world)
    await world.shared.open()
    assert {1} == await world.creation().run([], FIRST)


class TestParsing:
    """K10: the values of --from and --to."""

    def test_words_and_times(self):
        assert StartPoint("new", None) == parse_start("--from", "new", NOW)
        assert FIRST == parse_start("--from", "first", NOW)
        assert NOW - 7200 * 10**9 == parse_start("--from", "2h", NOW).at
        assert NOW == parse_start("--from", "2026-09-21T14:13:20Z", NOW).at

    def test_beginning_of_time_is_a_time(self):
        """It isn't `first`, of which all delayed messages come."""
        assert 1 == parse_start("--to", "1970-01-01T00:00:00Z", NOW).at

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                "tomorrow",
                "'tomorrow' is neither new, first, a time such as 2026-01-31T08:00:00Z, nor how long ago, such as 6h",
            ),
            ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z is in the future: name a time that has passed, or new"),
        ],
    )
    def test_other_values_are_one_sentence(self, text, said):
        with pytest.raises(ConfigError) as failed:
            parse_start("--from", text, NOW)
        assert f"--from: {said}" == str(failed.value)
