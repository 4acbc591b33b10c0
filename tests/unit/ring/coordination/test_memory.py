"""The in-memory adapter beyond the contract: faults and time as calls."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.memory.server import Backup, MemoryKeyValueStore
from evenlane.ring.coordination.ports import CoordinationError, DeleteKey, Event, Listing, PutKey, Unavailable
from tests.support.etcd.harness import listing, next_update, short


@pytest.fixture
def client():
    return MemoryCoordination()


async def test_disconnected_watch_lists_again(client):
    watch = client.watch("")
    await next_update(watch)
    await client.put("a", b"1")
    client.disconnect_watches()
    await client.put("b", b"2")
    assert short(await next_update(watch)) == ("listing", "a", "b")
    await client.delete("a")
    assert short(await next_update(watch)) == ("delete", "a", "")


async def test_waiting_watch_notices_the_disconnection(client):
    watch = client.watch("")
    await next_update(watch)
    waiting = asyncio.ensure_future(next_update(watch))
    await asyncio.sleep(0)
    client.disconnect_watches()
    assert isinstance(await waiting, Listing)


async def test_watch_behind_a_compaction_lists_again(client):
    """Fault 11."""
    watch = client.watch("")
    await next_update(watch)
    await client.put("a", b"1")
    client.compact(await client.put("a", b"2"))
    assert short(await next_update(watch)) == ("listing", "a")
    await client.put("a", b"3")
    assert short(await next_update(watch)) == ("put", "a", "3")


@pytest.mark.parametrize("revision", [0, 2, 5])
def test_only_past_revisions_can_be_compacted_and_only_once(revision):
    store = MemoryKeyValueStore()
    for n in range(3):
        store.txn([], [PutKey("a", b"%d" % n)], [])
    store.compact(2)
    with pytest.raises(CoordinationError, match="can't be compacted"):
        store.compact(revision)


async def test_rollback_restores_keys_and_revision(client):
    """F3: watches list again, and revisions are used again."""
    lease = await client.grant(5)
    await client.put("a/1", b"x", lease)
    then = await client.put("a/2", b"y")
    before = await client.list("")
    watch = client.watch("a/")
    await anext(watch)
    await client.put("a/1", b"z")
    await client.delete("a/2")
    client.roll_back(then)
    assert before == await client.list("") == await anext(watch)
    assert then + 1 == await client.put("a/3", b"")
    assert "a/3" == (await anext(watch)).item.key
    client.advance(5)
    assert await client.get("a/1") is None
    client.compact(2)
    with pytest.raises(CoordinationError):
        client.roll_back(then)


async def test_cut_affects_one_client_only(client):
    """Fault 10: one node is cut off from etcd, while the others are connected."""
    other = client.peer()
    watch, others = client.watch(""), other.watch("")
    await next_update(watch)
    await next_update(others)
    client.cut()
    with pytest.raises(Unavailable):
        await client.get("a")
    await other.put("a", b"1")
    assert short(await next_update(others)) == ("put", "a", "1")
    waiting = asyncio.ensure_future(next_update(watch))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    client.heal()
    assert short(await waiting) == ("listing", "a")


async def test_leases_expire_in_the_order_of_their_ends(client):
    watch = client.watch("")
    await next_update(watch)
    for ttl in (20, 10):
        await client.put(str(ttl), b"", await client.grant(ttl))
    client.advance(9.999)
    assert len((await client.list("")).items) == 2
    client.advance(20)
    events = [await next_update(watch) for _ in range(4)]
    assert [short(each)[:2] for each in events[2:]] == [("delete", "10"), ("delete", "20")]


async def test_lease_of_less_than_a_second_is_refused(client):
    with pytest.raises(CoordinationError, match="at least 1 s"):
        await client.grant(0)


def test_history_is_bounded():
    store = MemoryKeyValueStore(most_history=10)
    for n in range(100):
        store.txn([], [PutKey("a", b"%d" % n)], [])
    kept = [event.item.mod_revision for event in store.events_after(0, "")]
    assert len(kept) <= 10
    assert [*range(store.compacted + 1, 102)] == kept


_names = st.sampled_from(["a", "b", "b/1", "b/2", "c"])
_ops = st.one_of(st.builds(PutKey, _names, st.binary(max_size=2)), st.builds(DeleteKey, _names))
_steps = st.lists(st.one_of(_ops, st.just("compact"), st.just("disconnect"), st.just("read")), max_size=40)


@given(_steps)
def test_watch_yields_the_content_of_a_listing(steps):
    """Fault 11: after any sequence of changes, compactions and disconnections."""

    async def scenario():
        client = MemoryCoordination()
        watch = client.watch("b")
        known = {}
        for step in steps:
            if step == "compact":
                if client.store.revision > client.store.compacted:
                    client.compact(client.store.revision)
            elif step == "disconnect":
                client.disconnect_watches()
            elif step == "read":
                _read(watch, known)
            else:
                await client.txn([], [step])
        client.disconnect_watches()
        await client.put("b/end", b"")
        while "b/end" not in known:
            _read(watch, known)
        assert {item.key: item for item in (await client.list("b")).items} == known

    asyncio.run(scenario())


def _read(watch, known):
    """Apply the watch's next update, if there is one now."""
    waiting = anext(watch)
    try:
        waiting.send(None)
    except StopIteration as ended:
        each = ended.value
    else:
        waiting.close()
        return
    if isinstance(each, Listing):
        known.clear()
        known.update({item.key: item for item in each.items})
    elif isinstance(each, Event) and each.kind == "put":
        known[each.item.key] = each.item
    elif isinstance(each, Event):
        del known[each.item.key]


async def test_restore_brings_back_keys_revision_and_leases(client):
    """F3: later leases are gone, and one that had ended is back."""
    kept, ended = await client.grant(5), await client.grant(5)
    await client.put("a/1", b"x", kept)
    await client.put("a/2", b"x", ended)
    before, backup = await client.list(""), client.store.backup()
    watch = client.watch("")
    await anext(watch)
    later = await client.grant(5)
    await client.put("a/3", b"", later)
    await client.revoke(ended)
    client.restore(backup)
    assert before == await client.list("")
    assert before == await listing(watch)
    assert (5, 5, 0) == tuple([await client.keep_alive(each) for each in (kept, ended, later)])
    assert {"a/2"} == await client.lease_keys(ended)
    assert await client.grant(5) > later


async def test_restore_of_an_empty_backup_gives_a_new_etcd(client):
    """F2."""
    lease = await client.grant(5)
    await client.put("a", b"", lease)
    client.restore(Backup())
    assert Listing(1, ()) == await client.list("")
    assert 0 == await client.keep_alive(lease)
    assert 2 == await client.put("a", b"")
