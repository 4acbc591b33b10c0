"""The contract of the streams that a named subscription has for itself, and of its retries in one of them."""

from contextlib import asynccontextmanager

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import LaneState, Lost, SubjectCounts
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import ConfigError
from tests.support.store.feeding import feeding, logged, whole
from tests.support.store.harness import AGAIN, LANE, LATER

_NEIGHBOUR = AGAIN._replace(partition=30)  # (its subjects begin with the same digit)


def subject(world, lane=AGAIN, project: str = "acme", hour: int = 7) -> str:
    return names.again_subject(f"{world.env}_audit", lane.partition, project, 0, "mid", hour)


@asynccontextmanager
async def audit(world, *, create: bool = True):
    """A store of the subscription `audit`."""
    store = world.another_of(f"{world.env}_audit")
    await store.open()
    try:
        if create:
            await store.create_own_streams()
            await store.prepare([LANE, LATER, AGAIN])
        yield store
    finally:
        await store.close()


class OwnStreamContract:
    async def test_room_for_some_bytes_leaves_no_stream(self, world):
        """K10: what a retention may need is checked before it begins."""
        before = await world.store.find_clusters(again=True)
        assert await world.store.has_room(1_000_000)
        assert await world.store.has_room(1_000_000)
        assert before == await world.store.find_clusters(again=True)

    async def test_node_never_creates_streams_of_a_subscription(self, world):
        """K10: a stopped node of a deleted subscription doesn't bring its streams back."""
        async with audit(world, create=False) as store:
            said = (
                f"stream SETTLED_{world.env}_audit of subscription 'audit' is missing:"
                f" `evenlane subscriptions create audit --env {world.env}` recreates it"
            )
            with pytest.raises(ConfigError) as failed:
                await store.prepare([LANE, LATER, AGAIN])
            assert said == str(failed.value)
            with pytest.raises(Lost):
                await store.state(AGAIN)
            with pytest.raises(Lost):
                await store.append_log(LANE, b"1", 0)
            with pytest.raises(ConfigError, match="is missing"):
                await store.prepare([])

    async def test_streams_are_created_checked_and_deleted(self, world):
        """K10: all of it can be repeated, and the unnamed subscription keeps its own streams."""
        await world.store.append_log(LANE, b"unnamed", 0)
        async with audit(world) as store:
            await store.create_own_streams()
            created = (await store.state(AGAIN)).created
            await store.append_log(AGAIN, b"1", 0)
            await store.put(names.dead_subject(f"{world.env}_audit", "acme"), b"", b"")
            assert {} == await world.store.counts(names.DEAD)
            assert [] == await store.find_missing_streams()
            await store.delete_own_streams()
            await store.delete_own_streams()
            assert [*names.own_streams(f"{world.env}_audit")] == await store.find_missing_streams()
            with pytest.raises(ConfigError, match="is missing"):
                await store.prepare([])
            await store.create_own_streams()
            await store.prepare([])
            assert created != (await store.state(AGAIN)).created
            assert ([], 0) == await logged(store, AGAIN)
        assert ([b"unnamed"]) == (await logged(world.store, LANE))[0]

    async def test_shared_streams_are_prepared_by_any_cluster(self, world):
        """K10."""
        lane = LANE._replace(partition=9)
        async with audit(world) as store:
            await store.prepare([lane])
            to = names.lane_subject(world.env, 9, "acme", 0, "mid")
            assert 1 == (await world.store.put(to, b"", b"")).sequence
            assert await store.state(lane) == await world.store.state(lane)

    async def test_partitions_share_the_stream_of_retries(self, world):
        """K10: each partition counts, reads and logs its own."""
        async with audit(world) as store:
            for n, to in enumerate(
                [subject(world), subject(world, _NEIGHBOUR), subject(world, project="other"), subject(world, hour=8)]
            ):
                assert n + 1 == (await store.put(to, b"", b"%d" % n)).sequence
            mine = {subject(world): 1, subject(world, hour=8): 1}
            assert mine | {subject(world, project="other"): 1} == await store.counts(AGAIN)
            assert SubjectCounts(mine, 4) == await store.count_by_subject(AGAIN, "acme")
            assert {subject(world, _NEIGHBOUR): 1} == await store.counts(_NEIGHBOUR)
            assert [b"3"] == [each.body for each in await store.next_of(AGAIN, subject(world, hour=8), 1, 10)]
            state = await store.state(AGAIN)
            assert state == await store.state(_NEIGHBOUR)
            assert LaneState(state.created, 1, 4, state.at) == state
            await store.append_log(AGAIN, b"mine", 0)
            assert ([], 0) == await logged(store, _NEIGHBOUR)
            await store.delete(_NEIGHBOUR, 2)
            assert {} == await store.counts(_NEIGHBOUR)

    async def test_feed_of_retries_has_one_partition_and_its_hours(self, world):
        """K10."""
        async with audit(world) as store:
            for to in (subject(world), subject(world, _NEIGHBOUR), subject(world, hour=8), subject(world)):
                await store.put(to, b"", b"")
            async with feeding(store, AGAIN, hours=["7"]) as taken:
                assert [1, 4] == await taken.got(2)
                await store.put(subject(world, _NEIGHBOUR), b"", b"")
                await store.put(subject(world), b"", b"")
                assert [1, 4, 6] == await taken.got(3)
            assert [1, 3, 4, 6] == await whole(store, AGAIN, until=6)

    async def test_retry_with_a_known_id_is_stored_once(self, world):
        """K3: as in a delay stream, so that a retry whose answer was lost can be repeated."""
        async with audit(world) as store:
            block = h.encode({h.ID: "acme:1:again:2"})
            first = await store.put(subject(world), block, b"")
            assert not first.duplicate
            assert first._replace(duplicate=True) == await store.put(subject(world), block, b"")

    async def test_clusters_are_found_by_their_settle_logs(self, world):
        """F2, K10: also if etcd has lost a subscription."""
        await world.store.prepare([LANE])
        assert {world.env} == await world.store.find_clusters()
        async with audit(world):
            assert {world.env, f"{world.env}_audit"} == await world.store.find_clusters(again=True)
            await world.second.prepare([LANE])
            assert {world.env, f"{world.env}_audit"} == await world.second.find_clusters()
        async with audit(world, create=False) as store:
            await store.delete_own_streams()
        assert {world.env} == await world.store.find_clusters(again=True)
