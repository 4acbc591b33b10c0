"""The contract of the coordination port, for each adapter: leases, watches and clients."""

import asyncio

import pytest

from evenlane.ring.coordination.ports import Event, KeyValue, LeaseGone, Listing, PutKey, Unavailable
from tests.support.etcd.harness import listing, next_update, short
from tests.support.until import until


class TestLease:
    async def test_key_names_its_lease(self, world, client):
        lease = await client.grant(60)
        await client.put(world.prefix + "a", b"", lease)
        assert lease == (await client.get(world.prefix + "a")).lease
        await client.put(world.prefix + "a", b"")
        assert (await client.get(world.prefix + "a")).lease == 0

    async def test_leases_differ(self, client):
        assert await client.grant(60) != await client.grant(60)

    async def test_end_of_lease_deletes_its_keys(self, world, client):
        """P5: a watch reports a node's death, at one revision for all its keys."""
        lease = await client.grant(5)
        await client.put(world.prefix + "kept", b"")
        await client.txn([], [PutKey(world.prefix + name, b"", lease) for name in ("a", "b")])
        watch = client.watch(world.prefix)
        assert ("listing", "a", "b", "kept") == short(await next_update(watch))
        await world.pass_time(5.5)
        first, second = await next_update(watch), await next_update(watch)
        assert {("delete", "a", ""), ("delete", "b", "")} == {short(first), short(second)}
        assert first.item.mod_revision == second.item.mod_revision
        assert [world.prefix + "kept"] == [item.key for item in (await client.list(world.prefix)).items]

    async def test_keep_alive_renews_lease(self, world, client):
        lease = await client.grant(3)
        await client.put(world.prefix + "a", b"", lease)
        for _ in range(3):
            await world.pass_time(2)
            assert await client.keep_alive(lease) == 3
        assert await client.get(world.prefix + "a") is not None

    async def test_keep_alive_of_ended_lease_is_0(self, client):
        lease = await client.grant(60)
        await client.revoke(lease)
        assert await client.keep_alive(lease) == 0
        assert await client.keep_alive(123_456) == 0

    async def test_lease_keys_follow_puts_and_deletes(self, world, client):
        """O: a node compares them with the partitions that it owns."""
        lease, other = await client.grant(60), await client.grant(60)
        a, b, c = (world.prefix + name for name in "abc")
        assert frozenset() == await client.lease_keys(lease)
        await client.txn([], [PutKey(a, b"", lease), PutKey(b, b"", lease), PutKey(c, b"", other)])
        assert {a, b} == await client.lease_keys(lease)
        await client.delete(a)
        await client.put(b, b"", other)
        await client.put(c, b"", lease)
        assert {c} == await client.lease_keys(lease)

    async def test_renewed_short_lease_has_keys(self, world, client):
        """O: etcd reports remaining time in whole seconds, of which a lease of one second has none."""

        async def found():
            """Nothing if the lease ended before the answer, as on a busy machine."""
            lease = await client.grant(1)
            renewed, keys = await client.keep_alive(lease), await client.lease_keys(lease)
            return [] if keys is None else [renewed, keys]

        assert [1, frozenset()] == await until(found)

    async def test_ended_lease_has_no_keys(self, world, client):
        lease = await client.grant(60)
        await client.put(world.prefix + "a", b"", lease)
        await client.revoke(lease)
        assert await client.lease_keys(lease) is None
        assert await client.lease_keys(123_456) is None

    async def test_revoke_deletes_keys_and_is_idempotent(self, world, client):
        lease = await client.grant(60)
        await client.put(world.prefix + "a", b"", lease)
        await client.revoke(lease)
        await client.revoke(lease)
        assert await client.get(world.prefix + "a") is None

    async def test_put_under_ended_lease_is_refused(self, world, client):
        """O: a node that has lost its lease can't create an owner key."""
        lease = await client.grant(60)
        await client.revoke(lease)
        with pytest.raises(LeaseGone):
            await client.put(world.prefix + "a", b"", lease)
        with pytest.raises(LeaseGone):
            await client.txn([], [PutKey(world.prefix + "b", b""), PutKey(world.prefix + "a", b"", lease)])
        assert () == (await client.list(world.prefix)).items

    async def test_key_put_without_lease_outlives_it(self, world, client):
        lease = await client.grant(60)
        await client.put(world.prefix + "a", b"", lease)
        await client.put(world.prefix + "a", b"free")
        await client.revoke(lease)
        assert (await client.get(world.prefix + "a")).value == b"free"


class TestWatch:
    async def test_watch_gives_listing_then_events_in_order(self, world, client):
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

    async def test_watch_ignores_other_prefixes(self, world, client):
        watch = client.watch(world.prefix + "b/")
        await next_update(watch)
        for name in ("a", "b", "b0", "b/1", "c"):
            await client.put(world.prefix + name, b"")
        assert ("put", "1", "") == short(await next_update(watch))
        await client.put(world.prefix + "b/2", b"")
        assert ("put", "2", "") == short(await next_update(watch))

    async def test_deletion_of_missing_key_is_no_event(self, world, client):
        watch = client.watch(world.prefix)
        await next_update(watch)
        await client.delete(world.prefix + "a")
        await client.put(world.prefix + "b", b"")
        assert ("put", "b", "") == short(await next_update(watch))

    async def test_watch_misses_no_key_of_concurrent_writers(self, world, client):
        """A watcher knows all written keys, whenever it began."""
        writers = [world.client() for _ in range(3)]

        async def write(number):
            for n in range(300):
                await writers[number].put(f"{world.prefix}{number}/{n}", b"")
                await asyncio.sleep(0)

        writing = asyncio.gather(*map(write, range(3)))
        watch = client.watch(world.prefix)
        known, last = set(), 0
        while len(known) < 900:
            each = await next_update(watch)
            items = each.items if isinstance(each, Listing) else (each.item,)
            revision = each.revision if isinstance(each, Listing) else each.item.mod_revision
            assert isinstance(each, Listing) or revision > last
            known.update(item.key for item in items)
            last = revision
        await writing
        assert {item.key for item in (await client.list(world.prefix)).items} == known

    async def test_watches_receive_same_events(self, world, client):
        watches = [client.watch(world.prefix), world.client().watch(world.prefix)]
        for watch in watches:
            await next_update(watch)
        for n in range(100):
            await client.put(f"{world.prefix}{n}", b"")
        received = [[await next_update(watch) for _ in range(100)] for watch in watches]
        assert received[0] == received[1]
        assert [f"{world.prefix}{n}" for n in range(100)] == [event.item.key for event in received[0]]

    async def test_watch_continues_after_compaction(self, world, client):
        watch = client.watch(world.prefix)
        await next_update(watch)
        revision = await client.put(world.prefix + "a", b"")
        await next_update(watch)
        await world.compact(revision)
        await client.put(world.prefix + "b", b"")
        assert ("put", "b", "") == short(await next_update(watch))

    async def test_watch_after_compaction_lists_all_keys(self, world, client):
        await client.put(world.prefix + "a", b"")
        await world.compact(await client.put(world.prefix + "b", b""))
        assert ("listing", "a", "b") == short(await next_update(client.watch(world.prefix)))

    async def test_aclose_ends_waiting_consumer(self, world, client):
        watch = client.watch(world.prefix)
        await next_update(watch)
        waiting = asyncio.ensure_future(anext(watch, "ended"))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await watch.aclose()
            assert await waiting == "ended"
            await watch.aclose()
        assert [each async for each in watch] == []

    async def test_closed_watch_leaves_others_open(self, world, client):
        one, other = client.watch(world.prefix), client.watch(world.prefix)
        await listing(one)
        await listing(other)
        await one.aclose()
        await client.put(world.prefix + "a", b"")
        assert ("put", "a", "") == short(await next_update(other))


class TestClient:
    async def test_status_is_version(self, client):
        assert await client.status()

    async def test_close_ends_watches_and_refuses_calls(self, world):
        client = world.client()
        watch = client.watch(world.prefix)
        await next_update(watch)
        waiting = asyncio.ensure_future(anext(watch, "ended"))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await client.close()
            assert await waiting == "ended"
            await client.close()
        for call in (client.get("a"), client.put("a", b""), client.grant(5), client.keep_alive(1)):
            with pytest.raises(Unavailable, match="closed"):
                await call
        with pytest.raises(Unavailable, match="closed"):
            client.watch(world.prefix)

    async def test_leases_outlive_client(self, world, client):
        other = world.client()
        lease = await other.grant(60)
        await other.put(world.prefix + "a", b"", lease)
        await other.close()
        assert lease == (await client.get(world.prefix + "a")).lease


async def test_exact_watch_reports_one_key(world, client):
    """S1: a client that may read one key alone watches it, and gets nothing of keys that begin with it."""
    await client.put(world.prefix + "a", b"1")
    await client.put(world.prefix + "ab", b"1")
    watch = client.watch(world.prefix + "a", exact=True)
    assert ("listing", "a") == short(await next_update(watch))
    await client.put(world.prefix + "ab", b"2")
    await client.put(world.prefix + "a", b"2")
    assert ("put", "a", "2") == short(await next_update(watch))
