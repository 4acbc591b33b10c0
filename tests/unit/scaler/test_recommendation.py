"""The leader's recommendation, as another process gives it (P10)."""

import asyncio

from evenlane.engine.base import names
from evenlane.engine.scaler.recommendation import Recommendation
from tests.support.until import until
from tests.unit.scaler.records import ENV, SECOND, Leader


async def test_number_is_that_of_the_leader():
    """P10."""
    async with Leader() as leader:
        await leader.write(desired=5)
        assert Recommendation(5) == leader.recommendations.current


async def test_without_a_leader_there_is_no_number():
    """P10."""
    async with Leader() as leader:
        assert Recommendation(None, "no leader has recommended a number of nodes yet") == leader.recommendations.current


async def test_old_number_is_not_given():
    """P10: three looks of 30 s, by this process's own clock."""
    async with Leader() as leader:
        await leader.write(desired=5)
        leader.now = 90 * SECOND
        assert 5 == leader.recommendations.current.nodes
        leader.now += 1 * SECOND
        assert Recommendation(None, "no leader has looked for 91s") == leader.recommendations.current
        await leader.write(desired=5)
        assert 5 == leader.recommendations.current.nodes


async def test_old_number_stays_old_when_the_watch_lists_it_again():
    """P10: a watch of etcd lists whenever its connection was interrupted, whether a leader lives or not."""
    async with Leader() as leader:
        await leader.write(desired=5)
        read = leader.records.count
        for leader.now in (60 * SECOND, 91 * SECOND):
            read += 1
            leader.coordination.disconnect_watches()
            await until(lambda: leader.records.count == read)  # noqa: B023 - awaited within the turn
        assert Recommendation(None, "no leader has looked for 91s") == leader.recommendations.current
        await leader.write(desired=5)
        assert 5 == leader.recommendations.current.nodes


async def test_other_setting_of_the_leader_is_named():
    """P10: two ways at once are refused."""
    async with Leader("hpa") as leader:
        await leader.write(desired=5)
        assert leader.recommendations.current == Recommendation(
            None, "the setting scaling is hpa here, and keda on node a, which leads: set the same on all nodes",
            is_conflict=True,
        )  # fmt: skip


async def test_problem_of_the_leader_is_passed_on():
    """P10."""
    async with Leader() as leader:
        await leader.write(desired=5, error="two disagree")
        assert Recommendation(None, "two disagree", is_conflict=True) == leader.recommendations.current


async def test_broken_or_deleted_record_counts_as_none():
    """P10."""
    key = names.key(ENV, "scaling")
    async with Leader() as leader:
        await leader.write(desired=5)
        await leader.coordination.put(key + "-of-another", b"[]")
        await leader.coordination.put(key, b"[]")
        await until(lambda: leader.recommendations.current.nodes is None)
        await leader.write(desired=6)
        await leader.coordination.delete(key)
        await until(lambda: leader.recommendations.current.nodes is None)


async def test_changes_are_followed():
    """P10: each number once."""
    found = []

    async def follow(recommendations):
        async for recommendation in recommendations.follow():
            found.append(recommendation.nodes)  # noqa: PERF401 - the stream has no end

    async with Leader() as leader:
        following = asyncio.create_task(follow(leader.recommendations))
        for desired in (3, 3, 4):
            await leader.write(desired=desired)
            await until(lambda: found[-1:] == [desired])  # noqa: B023 - awaited within the turn
        following.cancel()
    assert [3, 4] == found[-2:]
