"""What every adapter of the coordination port does (`evenlane.ring.coordination.ports`)."""

import asyncio

import pytest

from evenlane.ring.coordination.ports import (
    Absent,
    CoordinationError,
    CreatedAt,
    Delete,
    Event,
    HeldUnder,
    KeyValue,
    LeaseGone,
    Listing,
    ModifiedAt,
    Put,
    TxnResult,
    Unavailable,
)
from tests.support.etcd.harness import listing, next_update, short


class TestKeys:
    async def test_get_of_nothing_is_none(self, world, client):
        assert await client.get(world.prefix + "a") is None

    async def test_put_then_get(self, world, client):
        key = world.prefix + "a"
        revision = await client.put(key, b"1")
        assert KeyValue(key, b"1", revision, revision, 0) == await client.get(key)

    async def test_a_second_put_keeps_the_create_revision(self, world, client):
        key = world.prefix + "a"
        first = await client.put(key, b"1")
        second = await client.put(key, b"2")
        assert second == first + 1
        assert KeyValue(key, b"2", first, second, 0) == await client.get(key)

    async def test_a_key_made_anew_has_a_newer_create_revision(self, world, client):
        """O: the create revision of an owner key is the epoch, so it never comes again."""
        key = world.prefix + "a"
        first = await client.put(key, b"1")
        await client.delete(key)
        again = await client.put(key, b"1")
        assert again > first
        assert again == (await client.get(key)).create_revision

    async def test_delete_tells_whether_there_was_one(self, world, client):
        key = world.prefix + "a"
        await client.put(key, b"1")
        assert await client.delete(key) is True
        assert await client.delete(key) is False
        assert await client.get(key) is None

    @pytest.mark.parametrize("value", [b"", b"\x00\xff", b"x" * 1_000_000], ids=len)
    async def test_any_bytes_are_kept(self, world, client, value):
        await client.put(world.prefix + "a", value)
        assert value == (await client.get(world.prefix + "a")).value

    async def test_a_key_may_hold_any_text(self, world, client):
        await client.put(world.prefix + "Zoë/日本", b"1")
        assert world.prefix + "Zoë/日本" == (await client.list(world.prefix + "Zo")).items[0].key

    async def test_a_request_that_is_too_large_is_refused(self, world, client):
        with pytest.raises(CoordinationError, match="too large"):
            await client.put(world.prefix + "a", b"x" * 1_600_000)


class TestList:
    async def test_of_nothing(self, world, client):
        found = await client.list(world.prefix)
        assert () == found.items
        assert found.revision >= 1

    async def test_is_sorted_and_ends_with_the_prefix(self, world, client):
        for name in ("b/2", "b/10", "a", "c", "b0", "b"):
            await client.put(world.prefix + name, b"")
        found = await client.list(world.prefix + "b/")
        assert [world.prefix + "b/10", world.prefix + "b/2"] == [item.key for item in found.items]

    async def test_revision_is_that_of_the_last_change(self, world, client):
        revision = await client.put(world.prefix + "a", b"1")
        assert revision == (await client.list(world.prefix)).revision
        await client.delete(world.prefix + "a")
        assert revision + 1 == (await client.list(world.prefix)).revision

    async def test_is_whole_over_many_pages(self, world, client):
        """E2: tens of thousands of topics are listed by one call."""
        names = [f"{world.prefix}{n:05}" for n in range(2_500)]
        for start in range(0, len(names), 125):
            await client.txn([], [Put(name, name.encode()) for name in names[start : start + 125]])
        found = await client.list(world.prefix)
        assert names == [item.key for item in found.items]
        assert names[-1].encode() == found.items[-1].value


class TestTransaction:
    async def test_first_come_creates(self, world, client):
        """P4: of many that want the leader's key, one gets it."""
        key = world.prefix + "leader"
        results = await asyncio.gather(*(client.txn([Absent(key)], [Put(key, str(n).encode())]) for n in range(20)))
        assert [True] == [result.succeeded for result in results if result.succeeded]

    async def test_the_other_arm(self, world, client):
        key, note = world.prefix + "a", world.prefix + "note"
        await client.put(key, b"1")
        result = await client.txn([Absent(key)], [Put(key, b"2")], [Put(note, b"taken"), Delete(key)])
        assert TxnResult(False, (await client.get(note)).create_revision) == result
        assert await client.get(key) is None

    async def test_a_failed_one_without_another_arm_changes_nothing(self, world, client):
        revision = await client.put(world.prefix + "a", b"1")
        result = await client.txn([Absent(world.prefix + "a")], [Put(world.prefix + "b", b"")])
        assert TxnResult(False, revision) == result

    async def test_all_of_an_arm_happens_at_one_revision(self, world, client):
        await client.put(world.prefix + "old", b"")
        result = await client.txn(
            [], [Put(world.prefix + "a", b"1"), Put(world.prefix + "b", b"2"), Delete(world.prefix + "old")]
        )
        found = await client.list(world.prefix)
        assert [("a", result.revision), ("b", result.revision)] == [
            (item.key[-1], item.mod_revision) for item in found.items
        ]

    async def test_created_at(self, world, client):
        """Z1: an owner key is deleted only by the owner whose epoch it is."""
        key = world.prefix + "owner"
        epoch = await client.put(key, b"a")
        await client.put(key, b"b")
        assert not (await client.txn([CreatedAt(key, epoch + 1)], [Delete(key)])).succeeded
        assert (await client.txn([CreatedAt(key, epoch)], [Delete(key)])).succeeded
        assert not (await client.txn([CreatedAt(key, epoch)], [Put(key, b"c")])).succeeded

    async def test_modified_at(self, world, client):
        key = world.prefix + "plan"
        first = await client.put(key, b"a")
        second = await client.put(key, b"b")
        assert not (await client.txn([ModifiedAt(key, first)], [Put(key, b"c")])).succeeded
        assert (await client.txn([ModifiedAt(key, second)], [Put(key, b"c")])).succeeded

    async def test_held_under(self, world, client):
        """O: after etcd went back, a key of the same create-revision may be another's."""
        key = world.prefix + "owner"
        lease, other = await client.grant(60), await client.grant(60)
        assert (await client.txn([HeldUnder(key, 0)], [])).succeeded
        assert not (await client.txn([HeldUnder(key, lease)], [])).succeeded
        await client.put(key, b"a", lease)
        for wrong in (other, 0):
            assert not (await client.txn([HeldUnder(key, wrong)], [Delete(key)])).succeeded
        assert (await client.txn([HeldUnder(key, lease)], [Put(key, b"b")])).succeeded
        assert not (await client.txn([HeldUnder(key, lease)], [])).succeeded
        assert (await client.txn([HeldUnder(key, 0)], [Delete(key)])).succeeded

    async def test_all_comparisons_must_hold(self, world, client):
        key = world.prefix + "a"
        revision = await client.put(key, b"")
        held, broken = CreatedAt(key, revision), Absent(key)
        assert (await client.txn([held, held], [])).succeeded
        assert not (await client.txn([held, broken], [])).succeeded

    async def test_128_operations_are_taken_and_129_refused(self, world, client):
        puts = [Put(f"{world.prefix}{n}", b"") for n in range(129)]
        assert (await client.txn([], puts[:128])).succeeded
        with pytest.raises(CoordinationError, match="too many operations"):
            await client.txn([], puts)

    async def test_a_key_put_twice_is_refused(self, world, client):
        with pytest.raises(CoordinationError, match="duplicate key"):
            await client.txn([], [Put(world.prefix + "a", b"1"), Put(world.prefix + "a", b"2")])


class TestLease:
    async def test_its_keys_carry_it(self, world, client):
        lease = await client.grant(60)
        await client.put(world.prefix + "a", b"", lease)
        assert lease == (await client.get(world.prefix + "a")).lease
        await client.put(world.prefix + "a", b"")
        assert (await client.get(world.prefix + "a")).lease == 0

    async def test_leases_differ(self, client):
        assert await client.grant(60) != await client.grant(60)

    async def test_its_end_deletes_its_keys_and_a_watch_sees_it(self, world, client):
        """P5: a node's death is seen by watch, at one revision for all its keys."""
        lease = await client.grant(1)
        await client.put(world.prefix + "kept", b"")
        await client.txn([], [Put(world.prefix + name, b"", lease) for name in ("a", "b")])
        watch = client.watch(world.prefix)
        assert ("listing", "a", "b", "kept") == short(await next_update(watch))
        await world.pass_time(1.5)
        first, second = await next_update(watch), await next_update(watch)
        assert {("delete", "a", ""), ("delete", "b", "")} == {short(first), short(second)}
        assert first.item.mod_revision == second.item.mod_revision
        assert [world.prefix + "kept"] == [item.key for item in (await client.list(world.prefix)).items]

    async def test_keep_alive_gives_it_its_seconds_again(self, client):
        lease = await client.grant(60)
        assert await client.keep_alive(lease) == 60

    async def test_keep_alive_keeps(self, world, client):
        lease = await client.grant(3)
        await client.put(world.prefix + "a", b"", lease)
        for _ in range(3):
            await world.pass_time(2)
            assert await client.keep_alive(lease) == 3
        assert await client.get(world.prefix + "a") is not None

    async def test_keep_alive_of_a_gone_one_is_0(self, client):
        lease = await client.grant(60)
        await client.revoke(lease)
        assert await client.keep_alive(lease) == 0
        assert await client.keep_alive(123_456) == 0

    async def test_its_keys_are_those_that_stand_under_it_now(self, world, client):
        """O: so a node finds out what etcd has of what it owns, and what it has beside that."""
        lease, other = await client.grant(60), await client.grant(60)
        a, b, c = (world.prefix + name for name in "abc")
        assert frozenset() == await client.lease_keys(lease)
        await client.txn([], [Put(a, b"", lease), Put(b, b"", lease), Put(c, b"", other)])
        assert {a, b} == await client.lease_keys(lease)
        await client.delete(a)
        await client.put(b, b"", other)
        await client.put(c, b"", lease)
        assert {c} == await client.lease_keys(lease)

    async def test_a_short_one_has_keys_as_long_as_it_is_renewed(self, world, client):
        """O: etcd tells its time in whole seconds, of which a lease of one second has none."""
        lease = await client.grant(1)
        assert 1 == await client.keep_alive(lease)
        assert frozenset() == await client.lease_keys(lease)

    async def test_one_that_is_gone_has_none(self, world, client):
        lease = await client.grant(60)
        await client.put(world.prefix + "a", b"", lease)
        await client.revoke(lease)
        assert await client.lease_keys(lease) is None
        assert await client.lease_keys(123_456) is None

    async def test_revoke_deletes_its_keys_and_may_be_repeated(self, world, client):
        lease = await client.grant(60)
        await client.put(world.prefix + "a", b"", lease)
        await client.revoke(lease)
        await client.revoke(lease)
        assert await client.get(world.prefix + "a") is None

    async def test_nothing_is_put_under_a_gone_one(self, world, client):
        """O: a node that has lost its lease can't make an owner key."""
        lease = await client.grant(60)
        await client.revoke(lease)
        with pytest.raises(LeaseGone):
            await client.put(world.prefix + "a", b"", lease)
        with pytest.raises(LeaseGone):
            await client.txn([], [Put(world.prefix + "b", b""), Put(world.prefix + "a", b"", lease)])
        assert () == (await client.list(world.prefix)).items

    async def test_a_key_put_without_it_outlives_it(self, world, client):
        lease = await client.grant(60)
        await client.put(world.prefix + "a", b"", lease)
        await client.put(world.prefix + "a", b"free")
        await client.revoke(lease)
        assert (await client.get(world.prefix + "a")).value == b"free"


class TestWatch:
    async def test_first_a_listing_then_events_in_order(self, world, client):
        await client.put(world.prefix + "a", b"0")
        watch = client.watch(world.prefix)
        first = await next_update(watch)
        assert await client.list(world.prefix) == first
        revision = await client.put(world.prefix + "b", b"1")
        await client.put(world.prefix + "b", b"2")
        await client.delete(world.prefix + "a")
        created = KeyValue(world.prefix + "b", b"1", revision, revision, 0)
        changed = KeyValue(world.prefix + "b", b"2", revision, revision + 1, 0)
        deleted = KeyValue(world.prefix + "a", b"", 0, revision + 2, 0)
        assert Event("put", created) == await next_update(watch)
        assert Event("put", changed) == await next_update(watch)
        assert Event("delete", deleted) == await next_update(watch)

    async def test_other_prefixes_are_not_told(self, world, client):
        watch = client.watch(world.prefix + "b/")
        await next_update(watch)
        for name in ("a", "b", "b0", "b/1", "c"):
            await client.put(world.prefix + name, b"")
        assert ("put", "1", "") == short(await next_update(watch))
        await client.put(world.prefix + "b/2", b"")
        assert ("put", "2", "") == short(await next_update(watch))

    async def test_a_deletion_of_nothing_is_not_told(self, world, client):
        watch = client.watch(world.prefix)
        await next_update(watch)
        await client.delete(world.prefix + "a")
        await client.put(world.prefix + "b", b"")
        assert ("put", "b", "") == short(await next_update(watch))

    async def test_none_is_missed_while_others_put(self, world, client):
        """What a watcher knows equals what was written, whenever it began."""
        writers = [world.client() for _ in range(3)]

        async def write(number):
            for n in range(1_000):
                await writers[number].put(f"{world.prefix}{number}/{n}", b"")
                await asyncio.sleep(0)

        writing = asyncio.gather(*map(write, range(3)))
        watch = client.watch(world.prefix)
        known, last = set(), 0
        while len(known) < 3_000:
            each = await next_update(watch)
            items = each.items if isinstance(each, Listing) else (each.item,)
            revision = each.revision if isinstance(each, Listing) else each.item.mod_revision
            assert isinstance(each, Listing) or revision > last
            known.update(item.key for item in items)
            last = revision
        await writing
        assert {item.key for item in (await client.list(world.prefix)).items} == known

    async def test_two_watches_hear_the_same(self, world, client):
        watches = [client.watch(world.prefix), world.client().watch(world.prefix)]
        for watch in watches:
            await next_update(watch)
        for n in range(100):
            await client.put(f"{world.prefix}{n}", b"")
        received = [[await next_update(watch) for _ in range(100)] for watch in watches]
        assert received[0] == received[1]
        assert [f"{world.prefix}{n}" for n in range(100)] == [event.item.key for event in received[0]]

    async def test_a_compaction_hurts_nobody_who_keeps_up(self, world, client):
        watch = client.watch(world.prefix)
        await next_update(watch)
        revision = await client.put(world.prefix + "a", b"")
        await next_update(watch)
        await world.compact(revision)
        await client.put(world.prefix + "b", b"")
        assert ("put", "b", "") == short(await next_update(watch))

    async def test_a_watch_made_after_a_compaction_lists_all(self, world, client):
        await client.put(world.prefix + "a", b"")
        await world.compact(await client.put(world.prefix + "b", b""))
        assert ("listing", "a", "b") == short(await next_update(client.watch(world.prefix)))

    async def test_aclose_ends_a_waiting_consumer(self, world, client):
        watch = client.watch(world.prefix)
        await next_update(watch)
        waiting = asyncio.ensure_future(anext(watch, "ended"))
        await asyncio.sleep(0)
        async with asyncio.timeout(1.0):
            await watch.aclose()
            assert await waiting == "ended"
            await watch.aclose()
        assert [each async for each in watch] == []

    async def test_closing_one_leaves_the_others(self, world, client):
        one, other = client.watch(world.prefix), client.watch(world.prefix)
        await listing(one)
        await listing(other)
        await one.aclose()
        await client.put(world.prefix + "a", b"")
        assert ("put", "a", "") == short(await next_update(other))


class TestClient:
    async def test_status_names_the_version(self, client):
        assert await client.status()

    async def test_close_ends_watches_and_calls(self, world):
        client = world.client()
        watch = client.watch(world.prefix)
        await next_update(watch)
        waiting = asyncio.ensure_future(anext(watch, "ended"))
        await asyncio.sleep(0)
        async with asyncio.timeout(1.0):
            await client.close()
            assert await waiting == "ended"
            await client.close()
        for call in (client.get("a"), client.put("a", b""), client.grant(5), client.keep_alive(1)):
            with pytest.raises(Unavailable, match="closed"):
                await call
        with pytest.raises(Unavailable, match="closed"):
            client.watch(world.prefix)

    async def test_leases_outlive_the_client(self, world, client):
        other = world.client()
        lease = await other.grant(60)
        await other.put(world.prefix + "a", b"", lease)
        await other.close()
        assert lease == (await client.get(world.prefix + "a")).lease
