"""Some keys, watched as if they were all under a prefix (S1)."""

import pytest

from evenlane.engine.cluster.keys_watch import KeysWatch
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Listing

A, B, LONGER = "/accepted/acme", "/accepted/beta", "/accepted/acme2"


@pytest.fixture
async def etcd():
    made = MemoryCoordination()
    yield made
    await made.close()


def keys(update):
    return [item.key for item in update.items] if isinstance(update, Listing) else (update.kind, update.item.key)


async def test_first_update_lists_the_keys_and_no_others(etcd):
    """S1: a producer of one project learns nothing of a project whose name begins with its own one."""
    await etcd.put(A, b"")
    await etcd.put(LONGER, b"")
    watch = KeysWatch(etcd, [B, A])
    assert [A] == keys(await anext(watch))
    await etcd.put(LONGER, b"x")
    await etcd.put(B, b"")
    assert ("put", B) == keys(await anext(watch))
    await etcd.delete(A)
    assert ("delete", A) == keys(await anext(watch))
    await watch.aclose()


async def test_listing_of_one_key_keeps_the_others(etcd):
    """After a lost connection each key is listed again; no key seems to be gone meanwhile."""
    await etcd.put(A, b"")
    await etcd.put(B, b"")
    watch = KeysWatch(etcd, [A, B])
    assert [A, B] == keys(await anext(watch))
    etcd.disconnect_watches()
    assert [[A, B], [A, B]] == [keys(await anext(watch)), keys(await anext(watch))]
    await watch.aclose()


async def test_close_ends_it(etcd):
    watch = KeysWatch(etcd, [A])
    assert [] == keys(await anext(watch))
    await watch.aclose()
    assert [] == [update async for update in watch]
