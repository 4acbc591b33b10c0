"""The contract of `state`, `counts`, `count_by_subject`, `get`, `scan`, `purge` and `delete`."""

from random import Random

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.wire import headers as h
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, LATER, OTHER


class LaneContract:
    async def test_state_of_new_lane_is_empty(self, world):
        state = await world.store.state(LANE)
        assert (0, 0, 0) == (state.first, state.last, state.at)
        assert state.created
        assert state == await world.second.state(LANE)

    async def test_state_has_time_of_last_message(self, world):
        await fill(world, 3)
        state = await world.store.state(LANE)
        last = (await world.store.get(LANE, [3]))[0]
        assert (1, 3, last.at) == (state.first, state.last, state.at)

    async def test_state_keeps_last_sequence_and_time_after_purge(self, world):
        """An identity is (created, time of the highest sequence seen)."""
        await fill(world, 3)
        before = await world.store.state(LANE)
        await world.store.purge(LANE, 4)
        assert before._replace(first=4) == await world.store.state(LANE)
        assert [4] == await fill(world, 1)

    async def test_state_keeps_last_sequence_and_time_after_delete(self, world):
        await fill(world, 3)
        before = await world.store.state(LANE)
        await world.store.delete(LANE, 3)
        assert before == await world.store.state(LANE)

    async def test_recreated_stream_has_another_creation_time(self, world):
        await fill(world, 3)
        before = await world.store.state(LANE)
        await world.replace(LANE)
        after = await world.store.state(LANE)
        assert before.created != after.created
        assert 0 == after.last

    async def test_state_creates_missing_lane(self, world):
        fresh = LANE._replace(partition=77)
        assert 0 == (await world.store.state(fresh)).last
        assert [1] == await fill(world, 1, fresh)

    async def test_size_is_that_of_the_stored_messages(self, world):
        assert (0, 0) == (await world.store.size(LANE))[1:]
        await fill(world, 3)
        size = await world.second.size(LANE)
        assert (1, 3) == (size.first, size.messages)
        await world.store.purge(LANE, 3)
        assert (3, 1) == (await world.second.size(LANE))[:2]
        assert 0 < (await world.second.size(LANE)).bytes < size.bytes

    async def test_counts_are_by_subject(self, world):
        await fill(world, 3)
        await fill(world, 2, project="other")
        await world.store.delete(LANE, 1)
        expected = {subject(world.env): 2, subject(world.env, project="other"): 2}
        assert expected == await world.second.counts(LANE)
        assert {} == await world.store.counts(OTHER)

    async def test_counts_after_a_sequence_leave_out_settled_subjects(self, world):
        """K10, E5: what is stored for other subscriptions only isn't taken for a backlog."""
        await fill(world, 3)
        await fill(world, 2, project="other")
        acme, other = subject(world.env), subject(world.env, project="other")
        assert ({acme: 3, other: 2}, {acme: 3, other: 5}) == await world.second.backlog_after(LANE, 0)
        assert ({other: 2}, {other: 5}) == await world.second.backlog_after(LANE, 3)
        assert ({}, {}) == await world.second.backlog_after(LANE, 5)

    async def test_held_counts_one_project_of_lane(self, world):
        """K6: producers count a topic's backlog by it if no node runs."""
        high = names.lane_subject(world.env, LANE.partition, "acme", 7, "high")
        await fill(world, 3)
        for project in ("acm", "acme2", "acme-2"):
            await fill(world, 2, project=project)
        await world.store.put(high, b"", b"")
        await world.store.delete(LANE, 1)
        assert ({subject(world.env): 2, high: 1}, 10) == await world.second.count_by_subject(LANE, "acme")
        assert ({}, 10) == await world.store.count_by_subject(LANE, "nobody")
        assert ({}, 0) == await world.store.count_by_subject(OTHER, "acme")
        assert ({}, 0) == await world.store.count_by_subject(LANE._replace(partition=78), "acme")

    async def test_held_counts_delay_stream_by_hour(self, world):
        """K1: the subject names the hour."""
        await fill(world, 2, LATER, hour=7)
        await fill(world, 1, LATER, hour=9)
        expected = {subject(world.env, LATER, hour=7): 2, subject(world.env, LATER, hour=9): 1}
        assert (expected, 3) == await world.store.count_by_subject(LATER, "acme")

    async def test_get_returns_all_fields_of_message(self, world):
        block = h.encode({h.ID: "acme:1", "Colour": "grün"})
        body = bytes(range(256))
        await world.store.put(subject(world.env), block, body)
        found = (await world.second.get(LANE, [1]))[0]
        assert (1, subject(world.env), body) == (found.sequence, found.subject, found.body)
        assert "acme:1" == h.value(found.headers, h.ID)
        assert {"Colour": "grün"} == h.decode_user(found.headers)

    async def test_get_returns_message_without_headers_and_body(self, world):
        await world.store.put(subject(world.env), b"", b"")
        found = (await world.store.get(LANE, [1]))[0]
        assert (b"", {}) == (found.body, h.decode_user(found.headers))

    async def test_get_keeps_order_and_returns_none_for_missing(self, world):
        """E12: a missing position is None."""
        await fill(world, 6)
        await world.store.delete(LANE, 2)
        await world.store.delete(LANE, 6)
        found = await world.store.get(LANE, [5, 2, 1, 6, 7, 5])
        assert [b"4", None, b"0", None, None, b"4"] == [each and each.body for each in found]

    async def test_get_takes_no_or_hundreds_of_sequences(self, world):
        await fill(world, 700)
        assert [] == await world.store.get(LANE, [])
        found = await world.store.get(LANE, range(1, 701))
        assert list(range(1, 701)) == [each.sequence for each in found]

    @pytest.mark.parametrize("known", [False, True])
    async def test_scan_finds_subject_from_start_within_limit(self, world, known):
        """Whether the lane's state is known or not."""
        if known:
            await world.store.state(LANE)
        for _ in range(5):
            await fill(world, 1)
            await fill(world, 2, project="other")
        await world.store.delete(LANE, 4)
        mine = subject(world.env)
        assert [1, 7, 10, 13] == await world.store.scan(LANE, mine, 1, 100)
        assert [7, 10] == await world.store.scan(LANE, mine, 2, 2)
        assert [] == await world.store.scan(LANE, mine, 14, 10)
        assert [] == await world.store.scan(LANE, subject(world.env, project="nobody"), 1, 10)

    @pytest.mark.parametrize("known", [False, True])
    async def test_scan_finds_thousands_of_messages(self, world, known):
        """More than one response holds, and all."""
        if known:
            await world.store.state(LANE)
        await fill(world, 5_000)
        assert list(range(11, 4_011)) == await world.store.scan(LANE, subject(world.env), 11, 4_000)
        assert list(range(11, 5_001)) == await world.store.scan(LANE, subject(world.env), 11, 16_384)

    async def test_scan_finds_large_messages(self, world):
        await world.store.state(LANE)
        to = subject(world.env)
        for _ in range(30):
            await world.store.put(to, b"", bytes(20_000))
        assert list(range(1, 31)) == await world.store.scan(LANE, subject(world.env), 1, 16_384)

    async def test_purge_removes_exactly_messages_below(self, world):
        await fill(world, 5)
        for below in (0, 1):
            await world.store.purge(LANE, below)
            assert (1, 5) == (await world.store.state(LANE))[1:3]
        await world.store.purge(LANE, 4)
        assert (4, 5) == (await world.store.state(LANE))[1:3]
        assert [None, b"3"] == [each and each.body for each in await world.store.get(LANE, [3, 4])]
        await world.store.purge(LANE, 4)
        assert (4, 5) == (await world.store.state(LANE))[1:3]

    @pytest.mark.parametrize("seed", range(6))
    async def test_deletes_and_purges_lose_no_other_message(self, world, seed):
        """L: nats-server counts wrong after a purge up to a deleted message, and then loses what is left."""
        chance, there, last = Random(seed), set(), 0
        for _ in range(30):
            put = await fill(world, chance.randint(5, 30))
            there, last = there | set(put), put[-1]
            gone = chance.sample(sorted(there), chance.randint(0, len(there)))
            for sequence in gone:
                await world.store.delete(LANE, sequence)
            there -= set(gone)
            below = chance.choice(gone) if gone and chance.random() < 0.5 else chance.randint(1, last + 1)
            await world.store.purge(LANE, below)
            there = {sequence for sequence in there if sequence >= below}
            assert len(there) == sum((await world.store.counts(LANE)).values())
            assert None not in await world.store.get(LANE, sorted(there))
            assert (await world.store.state(LANE)).first == min(there, default=last + 1)

    async def test_delete_is_idempotent(self, world):
        await fill(world, 3, LATER, hour=7)
        for _ in range(2):
            await world.store.delete(LATER, 2)
        assert {subject(world.env, LATER, hour=7): 2} == await world.store.counts(LATER)

    async def test_reads_of_missing_stream_are_lost(self, world):
        nowhere = LANE._replace(partition=99)
        with pytest.raises(Lost):
            await world.store.scan(nowhere, subject(world.env), 1, 10)
        with pytest.raises(Lost):
            await world.store.get(nowhere, [1])

    async def test_purge_that_may_not_be_any_more_removes_nothing(self, world):
        """L, K10: requests that precede the purge take time, in which the lease may end."""
        await fill(world, 3)
        asked = []
        with pytest.raises(Lost, match="isn't purged: the lease isn't trusted any more"):
            await world.store.purge(LANE, 3, lambda: bool(asked.append(True)))
        assert [True] == asked
        assert 1 == (await world.store.state(LANE)).first
        await world.store.purge(LANE, 3, lambda: True)
        assert 3 == (await world.store.state(LANE)).first
