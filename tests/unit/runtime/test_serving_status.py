"""When a node counts as serving or on standby."""

import asyncio

import pytest

from evenlane.engine.runtime.serving_status import ServingStatus, explain_waiting, patience_s
from tests.support.until import until


@pytest.fixture
def ready():
    return []


async def test_plan_with_partitions_counts_at_once(ready):
    """P5: and so do all plans after it."""
    status = ServingStatus(lambda *now: ready.append(now), patience_s=600, early_s=600)
    status.on_carried_out(64, 2)
    status.on_carried_out(0, 3)
    assert ([(64, 2), (0, 3)], (0, 3)) == (ready, status.current)


async def test_early_plan_without_partitions_is_followed_by_one_with_some(ready):
    """P5: such as the plan of the node's session before."""
    status = ServingStatus(lambda *now: ready.append(now), patience_s=600, early_s=600)
    status.on_carried_out(0, 7)
    assert ([], None) == (ready, status.current)
    status.on_carried_out(42, 8)
    assert [(42, 8)] == ready


async def test_node_without_partitions_is_on_standby_after_a_while(cluster, ready):
    """Z3: by a plan that came early, or later."""
    node = await cluster.join("a")
    early, late = (ServingStatus(lambda *now: ready.append(now), patience_s=600, early_s=0) for _ in range(2))
    early.on_carried_out(0, 7)
    waiting = [asyncio.create_task(status.limit_waiting(node.membership)) for status in (early, late)]
    await until(lambda: ready)
    assert ([(0, 7)], None) == (ready, late.current)
    late.on_carried_out(0, 8)
    assert [(0, 7), (0, 8)] == ready
    for task in waiting:
        task.cancel()


async def test_node_without_a_plan_does_not_wait_for_ever(cluster, ready):
    """P4: no leader. The reason is in words."""
    node = await cluster.join("a")
    status = ServingStatus(lambda *now: ready.append(now), patience_s=0, early_s=0)
    await asyncio.wait_for(status.limit_waiting(node.membership), 10)
    assert [(0, 0)] == ready
    assert "it waits for a leader to plan partitions for it" == explain_waiting(node.membership)


async def test_node_whose_partitions_do_not_come_serves_the_others(cluster, ready):
    """P5: the line has those that it serves."""
    await cluster.client.put("/evenlane/online/owners/1", b"{}", await cluster.client.grant(600))
    node = await cluster.join("a")
    await cluster.plan(a=[0, 1, 2])
    await until(lambda: node.owned == [0, 2])
    assert "it waits for its first partitions: it serves 2 of 3 planned" == explain_waiting(node.membership)
    status = ServingStatus(lambda *now: ready.append(now), patience_s=0, early_s=0)
    await asyncio.wait_for(status.limit_waiting(node.membership), 10)
    assert [(2, 0)] == ready


@pytest.mark.parametrize(("lease_ttl_s", "patience"), [(1, 15), (10, 30), (600, 60)])
def test_patience_follows_the_lease(lease_ttl_s, patience):
    assert patience == patience_s(lease_ttl_s)
