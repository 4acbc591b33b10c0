"""Prefix watch: updates by name, and the detection of an etcd rollback (F2)."""

import pytest

from evenlane.engine.cluster.prefix_watch import PrefixWatch
from evenlane.ring.coordination.memory.client import MemoryCoordination

PREFIX = "/evenlane/online/owners/"


@pytest.fixture
async def etcd():
    made = MemoryCoordination()
    yield made
    await made.close()


async def put(etcd, *names):
    for name in names:
        await etcd.put(PREFIX + name, b"")


async def test_updates_go_by_name(etcd):
    await put(etcd, "1")
    async with PrefixWatch(etcd, PREFIX) as items:
        first = await anext(items)
        await put(etcd, "2")
        second = await anext(items)
        await etcd.delete(PREFIX + "1")
        third = await anext(items)
    assert [(["1"], (), True), (["2"], (), False), ([], ("1",), False)] == [
        ([*update.changed], update.gone, update.whole) for update in (first, second, third)
    ]
    assert [2, 3, 4] == [update.revision for update in (first, second, third)]
    assert not any(update.gone_back for update in (first, second, third))


async def test_listing_after_a_lost_connection_is_no_rollback(etcd):
    async with PrefixWatch(etcd, PREFIX) as items:
        await anext(items)
        await put(etcd, "1", "2")
        await anext(items)
        etcd.disconnect_watches()
        update = await anext(items)
    assert (["1", "2"], True, False) == ([*update.changed], update.whole, update.gone_back)


@pytest.mark.parametrize("behind", [True, False])
async def test_rollback_is_reported_once(etcd, behind):
    """Also if etcd has a higher revision again, with other keys: it compares the revisions of known events."""
    await put(etcd, "1")
    backup = etcd.store.backup()
    async with PrefixWatch(etcd, PREFIX) as items:
        await anext(items)
        await put(etcd, "1")
        assert ["1"] == [*(await anext(items)).changed]
        etcd.restore(backup)
        if not behind:
            await put(etcd, "2", "3", "4")
        update = await anext(items)
        assert (True, True, 2 if behind else 5) == (update.whole, update.gone_back, update.revision)
        await put(etcd, "5")
        assert not (await anext(items)).gone_back
