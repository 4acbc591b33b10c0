"""The contract of the coordination port, for each adapter: keys, lists and transactions."""

import asyncio

import pytest

from evenlane.ring.coordination.ports import (
    Absent,
    CoordinationError,
    CreatedAt,
    DeleteKey,
    HeldUnder,
    KeyValue,
    ModifiedAt,
    PutKey,
    TxnResult,
)


class TestKeys:
    async def test_get_of_missing_key_is_none(self, world, client):
        assert await client.get(world.prefix + "a") is None

    async def test_get_returns_put_value(self, world, client):
        key = world.prefix + "a"
        revision = await client.put(key, b"1")
        assert KeyValue(key, b"1", revision, revision, 0) == await client.get(key)

    async def test_second_put_keeps_create_revision(self, world, client):
        key = world.prefix + "a"
        first = await client.put(key, b"1")
        second = await client.put(key, b"2")
        assert second == first + 1
        assert KeyValue(key, b"2", first, second, 0) == await client.get(key)

    async def test_recreated_key_has_newer_create_revision(self, world, client):
        """O: the create revision of an owner key is the epoch, so it must not come again."""
        key = world.prefix + "a"
        first = await client.put(key, b"1")
        await client.delete(key)
        again = await client.put(key, b"1")
        assert again > first
        assert again == (await client.get(key)).create_revision

    async def test_delete_returns_whether_key_existed(self, world, client):
        key = world.prefix + "a"
        await client.put(key, b"1")
        assert await client.delete(key) is True
        assert await client.delete(key) is False
        assert await client.get(key) is None

    @pytest.mark.parametrize("value", [b"", b"\x00\xff", b"x" * 1_000_000], ids=len)
    async def test_value_may_be_any_bytes(self, world, client, value):
        await client.put(world.prefix + "a", value)
        assert value == (await client.get(world.prefix + "a")).value

    async def test_key_may_be_any_text(self, world, client):
        await client.put(world.prefix + "Zoë/日本", b"1")
        assert world.prefix + "Zoë/日本" == (await client.list(world.prefix + "Zo")).items[0].key

    async def test_too_large_request_is_refused(self, world, client):
        with pytest.raises(CoordinationError, match="too large"):
            await client.put(world.prefix + "a", b"x" * 1_600_000)


class TestList:
    async def test_list_of_unused_prefix_is_empty(self, world, client):
        found = await client.list(world.prefix)
        assert () == found.items
        assert found.revision >= 1

    async def test_list_is_sorted_and_ends_with_prefix(self, world, client):
        for name in ("b/2", "b/10", "a", "c", "b0", "b"):
            await client.put(world.prefix + name, b"")
        found = await client.list(world.prefix + "b/")
        assert [world.prefix + "b/10", world.prefix + "b/2"] == [item.key for item in found.items]

    async def test_revision_is_that_of_last_change(self, world, client):
        revision = await client.put(world.prefix + "a", b"1")
        assert revision == (await client.list(world.prefix)).revision
        await client.delete(world.prefix + "a")
        assert revision + 1 == (await client.list(world.prefix)).revision

    async def test_list_is_complete_over_many_pages(self, world, client):
        """E2: tens of thousands of topics are listed by one call."""
        names = [f"{world.prefix}{n:05}" for n in range(2_500)]
        for start in range(0, len(names), 125):
            await client.txn([], [PutKey(name, name.encode()) for name in names[start : start + 125]])
        found = await client.list(world.prefix)
        assert names == [item.key for item in found.items]
        assert names[-1].encode() == found.items[-1].value


class TestTransaction:
    async def test_one_of_many_creates_key(self, world, client):
        """P4: of many nodes that want the leader's key, one gets it."""
        key = world.prefix + "leader"
        results = await asyncio.gather(*(client.txn([Absent(key)], [PutKey(key, str(n).encode())]) for n in range(20)))
        assert [True] == [result.succeeded for result in results if result.succeeded]

    async def test_failed_comparison_carries_out_other_arm(self, world, client):
        key, note = world.prefix + "a", world.prefix + "note"
        await client.put(key, b"1")
        result = await client.txn([Absent(key)], [PutKey(key, b"2")], [PutKey(note, b"taken"), DeleteKey(key)])
        assert TxnResult(False, (await client.get(note)).create_revision) == result
        assert await client.get(key) is None

    async def test_failed_transaction_without_other_arm_changes_nothing(self, world, client):
        revision = await client.put(world.prefix + "a", b"1")
        result = await client.txn([Absent(world.prefix + "a")], [PutKey(world.prefix + "b", b"")])
        assert TxnResult(False, revision) == result

    async def test_operations_of_arm_share_revision(self, world, client):
        await client.put(world.prefix + "old", b"")
        result = await client.txn(
            [], [PutKey(world.prefix + "a", b"1"), PutKey(world.prefix + "b", b"2"), DeleteKey(world.prefix + "old")]
        )
        found = await client.list(world.prefix)
        assert [("a", result.revision), ("b", result.revision)] == [
            (item.key[-1], item.mod_revision) for item in found.items
        ]

    async def test_created_at_compares_create_revision(self, world, client):
        """Z1: only the owner of an epoch deletes its key."""
        key = world.prefix + "owner"
        epoch = await client.put(key, b"a")
        await client.put(key, b"b")
        assert not (await client.txn([CreatedAt(key, epoch + 1)], [DeleteKey(key)])).succeeded
        assert (await client.txn([CreatedAt(key, epoch)], [DeleteKey(key)])).succeeded
        assert not (await client.txn([CreatedAt(key, epoch)], [PutKey(key, b"c")])).succeeded

    async def test_modified_at_compares_mod_revision(self, world, client):
        key = world.prefix + "plan"
        first = await client.put(key, b"a")
        second = await client.put(key, b"b")
        assert not (await client.txn([ModifiedAt(key, first)], [PutKey(key, b"c")])).succeeded
        assert (await client.txn([ModifiedAt(key, second)], [PutKey(key, b"c")])).succeeded

    async def test_held_under_compares_lease(self, world, client):
        """O: after etcd was rolled back, a key with the same create revision may be another owner's."""
        key = world.prefix + "owner"
        lease, other = await client.grant(60), await client.grant(60)
        assert (await client.txn([HeldUnder(key, 0)], [])).succeeded
        assert not (await client.txn([HeldUnder(key, lease)], [])).succeeded
        await client.put(key, b"a", lease)
        for wrong in (other, 0):
            assert not (await client.txn([HeldUnder(key, wrong)], [DeleteKey(key)])).succeeded
        assert (await client.txn([HeldUnder(key, lease)], [PutKey(key, b"b")])).succeeded
        assert not (await client.txn([HeldUnder(key, lease)], [])).succeeded
        assert (await client.txn([HeldUnder(key, 0)], [DeleteKey(key)])).succeeded

    async def test_all_comparisons_must_hold(self, world, client):
        key = world.prefix + "a"
        revision = await client.put(key, b"")
        held, broken = CreatedAt(key, revision), Absent(key)
        assert (await client.txn([held, held], [])).succeeded
        assert not (await client.txn([held, broken], [])).succeeded

    async def test_128_operations_are_accepted_and_129_refused(self, world, client):
        puts = [PutKey(f"{world.prefix}{n}", b"") for n in range(129)]
        assert (await client.txn([], puts[:128])).succeeded
        with pytest.raises(CoordinationError, match="too many operations"):
            await client.txn([], puts)

    async def test_key_put_twice_is_refused(self, world, client):
        with pytest.raises(CoordinationError, match="duplicate key"):
            await client.txn([], [PutKey(world.prefix + "a", b"1"), PutKey(world.prefix + "a", b"2")])
