"""A node's load: slots in use, and slots that would be used (P10, X6)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.clock import now_ns
from evenlane.engine.telemetry.tenants.load import Demand, wanted_slots
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.node.gated import gated
from tests.support.node.world import CLUSTER_CONFIG, topic
from tests.support.tenant_rounds import go_round, look, tenants
from tests.support.tenant_rounds import topic as small_topic
from tests.support.until import until

NS = 1_000_000_000


def test_what_waits_for_slots_would_use_them():
    """P10: 40 msg/s arrive, and 600 wait that should be gone in a minute: 50 msg/s of 0.2 s."""
    assert 10.0 == wanted_slots(Demand(used=4.0, handling_s=0.2, arriving=40, waiting=600), 60)


def test_demand_ends_at_the_quota():
    """X6: a million wait for slots, but the quota is 45 msg/s."""
    assert 9.0 == wanted_slots(Demand(used=4.0, handling_s=0.2, arriving=40, waiting=10**6, quota=45), 60)


def test_demand_ends_at_the_concurrency():
    """X6."""
    assert 6.0 == wanted_slots(Demand(used=4.0, handling_s=0.2, arriving=40, waiting=10**6, most=6), 60)


@given(
    used=st.floats(0, 1e3),
    handling_s=st.floats(0, 100),
    arriving=st.floats(0, 1e5),
    waiting=st.integers(0, 10**9),
    quota=st.floats(0, 1e5),
    recovery_s=st.floats(1, 1e4),
)
def test_demand_is_at_least_what_is_used_and_at_most_the_quota_beyond_it(
    used, handling_s, arriving, waiting, quota, recovery_s
):
    """X6."""
    wanted = wanted_slots(Demand(used, handling_s, arriving, waiting, quota), recovery_s)
    assert used <= wanted <= max(used, quota * handling_s * (1 + 1e-9))
    assert waiting or used == wanted


def played(*looks, seconds=60, part=1.0, topics=None):
    """The load after `seconds` of rounds with these counters per second: `(project, backlog, reason, arrived,
    attempts, slot seconds)`.
    """
    known = tenants()
    for at in range(seconds):
        seen = [
            look(project, backlog=backlog, reason=reason,
                 flow=(at * arrived, at * done, 0, 0, 0, 0, at * done, 0, int(at * ran * NS)))
            for project, backlog, reason, arrived, done, ran in looks
        ]  # fmt: skip
        go_round(known, at, *seen, part=part, topics=topics or small_topic(qps=1e6))
    return known.loads.load


def test_slots_in_use_and_mean_time_of_a_handler():
    """P10: two projects, at 4 and 2 slots."""
    load = played(("acme", 0, None, 40, 40, 4.0), ("initech", 0, None, 10, 10, 2.0))
    assert (6.0, 6.0) == (pytest.approx(load.used, rel=0.05), pytest.approx(load.wanted, rel=0.05))
    assert 6 / 50 == pytest.approx(load.handling, rel=0.01)
    assert {} == load.blocked


@pytest.mark.parametrize("reason", ["fairness", "handlers_busy", "headroom"])
def test_waits_for_slots_count(reason):
    """P10: 4 slots in use, 100 msg/s arrive, 6,000 wait: 200 msg/s of 0.1 s."""
    load = played(("acme", 6_000, reason, 100, 40, 4.0))
    assert (4.0, 20.0) == (pytest.approx(load.used, rel=0.05), pytest.approx(load.wanted, rel=0.1))
    assert {} == load.blocked


@pytest.mark.parametrize("reason", ["quota", "paused", "endpoint", "concurrency", "no_handler"])
def test_waits_that_no_node_would_end_are_only_counted(reason):
    """X6."""
    load = played(("acme", 1_000_000, reason, 100, 40, 4.0))
    assert load.wanted == load.used == pytest.approx(4.0, rel=0.05)
    assert {reason: 1_000_000} == load.blocked


@pytest.mark.parametrize("reason", ["not_due", "ordered", "higher_priority", "no_owner"])
def test_other_waits_count_as_neither(reason):
    """X6."""
    load = played(("acme", 1_000, reason, 100, 40, 4.0))
    assert (load.used, {}) == (load.wanted, load.blocked)


def test_part_of_the_quota_bounds_a_project_on_each_node():
    """X6: of 300 msg/s the node may use a quarter."""
    load = played(("acme", 10**6, "fairness", 100, 40, 4.0), part=0.25, topics=small_topic(qps=300.0))
    assert 7.5 == pytest.approx(load.wanted, rel=0.05)


def test_concurrency_of_a_topic_bounds_it():
    """X6."""
    load = played(("acme", 10**6, "fairness", 100, 40, 4.0), topics=small_topic(qps=1e6, concurrency=5))
    assert 5.0 == load.wanted


def test_project_that_has_had_no_slot_yet_is_taken_to_be_like_the_others():
    """P10: otherwise a starved project would need nothing."""
    load = played(("acme", 0, None, 40, 40, 4.0), ("initech", 600, "fairness", 0, 0, 0.0))
    assert 5.0 == pytest.approx(load.wanted, rel=0.05)


def test_load_is_unknown_before_the_first_rounds_and_after_the_session():
    """P10."""
    assert played(("acme", 0, None, 40, 40, 4.0), seconds=1) is None
    known = tenants()
    for at in range(9):
        go_round(known, at, look())
    assert 0.0 == known.loads.load.wanted
    known.clear()
    assert known.loads.load is None


def test_cost_of_a_project_that_sleeps_is_nothing():
    """E16: only projects with recent use are looked at."""
    known = tenants()
    for at in range(400):
        go_round(known, at, look(flow=(0, 0, 0, 0, 0, 0, min(at, 2), 0, min(at, 2) * NS)))
    steps = known.loads.measure(10**15, known.usage, lambda _: None, lambda _: 1.0)
    assert 0 == len([*steps])


async def load_of_a_node(slots, rules):
    """The load of a real node with 500 messages of one project, whose handlers never end, by its own sampler."""
    async with gated(acme=rules) as world:
        await world.put_many(500)
        node = await world.node(world.handle, concurrency=slots)
        await until(lambda: node.workers.running and node.backlog >= 500 - slots)
        known = TenantRegistry(CLUSTER_CONFIG.priorities, 10, CLUSTER_CONFIG.max_group_qps, recovery_s=1)
        sampler = QueueSampler(node, known)
        began = now_ns()
        for second in range(8):
            await sampler.round(began + second * NS)
            await asyncio.sleep(0.1)  # slots are credited by the real clock
        return known.loads.load


async def test_node_whose_handlers_are_busy_wants_more_slots():
    """P10: though none of its handlers has ended yet."""
    load = await load_of_a_node(2, topic())
    assert load.wanted > 10 * load.used > 0
    assert {} == load.blocked


async def test_node_whose_messages_wait_for_their_quota_wants_no_more():
    """X6."""
    load = await load_of_a_node(8, topic(qps=0.01, burst=1))
    assert load.wanted == load.used > 0
    assert 490 < load.blocked["quota"] < 500
