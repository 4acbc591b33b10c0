"""The registry of subscriptions: what a view of it allows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.cluster.ownership.owner_keys import OwnerKeys
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.cluster.subscriptions.registry import (
    RegistryRecord,
    RegistryView,
    Subscription,
    read_view,
    registry_key,
)
from evenlane.engine.cluster.subscriptions.registry_watch import RegistryWatch
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Unavailable
from evenlane.ring.membership.records import PlanRecord, RecordError, encode
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = registry_key("online")
ACTIVE = Subscription(state="active")


@pytest.fixture
async def etcd() -> AsyncIterator[MemoryCoordination]:
    made = MemoryCoordination()
    yield made
    await made.close()


def record(*each: str) -> bytes:
    return encode(RegistryRecord(subscriptions=dict.fromkeys(each, ACTIVE)))


async def view_of(etcd: MemoryCoordination) -> RegistryView:
    return read_view(await etcd.get(KEY))


async def test_no_subscription_bounds_nothing(etcd: MemoryCoordination) -> None:
    """K10: without a registry there are no others, and the unnamed subscription removes."""
    view = await view_of(etcd)
    assert not view.exists
    assert () == view.list_others("online")
    assert view.is_remover("online")


async def test_each_other_subscription_counts_in_any_state(etcd: MemoryCoordination) -> None:
    """K10: also one that is being created or deleted; the unnamed one counts for the named ones."""
    states = {"bill": ACTIVE, "mail": Subscription(state="creating"), "old": Subscription(state="deleting")}
    await etcd.put(KEY, encode(RegistryRecord(subscriptions=states)))
    view = await view_of(etcd)
    assert ("online_bill", "online_mail", "online_old") == view.list_others("online")
    assert ("online", "online_bill", "online_old") == view.list_others("online_mail")
    assert not view.is_remover("online_mail")


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"subscriptions": {"a_b": {"state": "active"}}}', b'{"format": 2}',
                                 b'{"subscriptions": {"a": {"state": "gone"}}}'])  # fmt: skip
async def test_value_that_cant_be_read(etcd: MemoryCoordination, raw: bytes) -> None:
    """L, K10: what others need is then unknown. The error names the key."""
    await etcd.put(KEY, raw)
    with pytest.raises(RecordError, match=KEY):
        await view_of(etcd)
    watch = RegistryWatch(etcd, "online")
    with capture_logs() as logs:
        await watch.start()
    assert [each["event"] for each in logs] == ["the subscriptions can't be read: nothing is removed from the streams"]
    assert watch.view.exists
    assert watch.view.list_others("online") is None
    await watch.close()


async def test_watch_reports_each_change_and_comes_back(etcd: MemoryCoordination) -> None:
    """K10: also a change that happened while etcd didn't answer."""
    watch = RegistryWatch(etcd.peer(), "online")
    await watch.start()
    seen: list[RegistryView] = []
    watch.on_change.append(seen.append)
    revision = await etcd.put(KEY, record("audit"))
    await until(lambda: seen == [RegistryView(revision, {"audit": ACTIVE})])
    await etcd.delete(KEY)
    await until(lambda: len(seen) == 2 and not seen[-1].exists)
    await watch.close()


async def test_claim_by_an_older_registry_is_refused(etcd: MemoryCoordination) -> None:
    """L, K10: an owner key that is newer than the registry belongs to an owner that follows it (study, test 2)."""
    view = RegistryView()
    lease = await etcd.grant(60)
    plan = await etcd.put(names.key("online", "plan", "a"), encode(PlanRecord(generation=1, partitions=[0, 1, 2])))
    keys = OwnerKeys(etcd, "online", "a", lease, RecordReader("online"), asyncio.Semaphore(), registry=lambda: view)
    assert await keys.claim(0, plan)
    changed = await etcd.put(KEY, record("audit"))
    assert not await keys.claim(1, plan)
    view = await view_of(etcd)
    assert await keys.claim(1, plan) > changed
    await etcd.delete(KEY)
    assert not await keys.claim(2, plan)
    view = await view_of(etcd)
    assert await keys.claim(2, plan)


async def test_etcd_that_is_silent_is_an_error(etcd: MemoryCoordination) -> None:
    """F2: a process says that etcd doesn't answer, instead of waiting for it without a word."""
    client = etcd.peer()
    client.cut()
    with pytest.raises(Unavailable):
        await RegistryWatch(client, "online").start()
    client.heal()
