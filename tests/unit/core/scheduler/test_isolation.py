"""Isolation: no tenant affects another beyond its fair share (X2, X3, X9), whatever it does."""

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.oracles.examples import examples
from tests.oracles.maxmin import poured
from tests.support.scheduler.parts import MS, SECOND
from tests.support.scheduler.world import SchedulerWorld
from tests.unit.core.scheduler.backlogs import PLENTY, backlogged


def test_tenant_with_800_groups_gets_the_share_of_one():
    """X2."""
    world = SchedulerWorld(slots=20)
    backlogged(world, "split", groups=800, band="high")
    for n in range(19):
        backlogged(world, f"t{n}")
    counts = world.counts(20 * SECOND)
    fair = sum(counts.values()) / 20
    assert 2_000 * 20 == pytest.approx(sum(counts.values()), rel=0.01)
    assert counts["split"] <= 1.02 * fair
    assert min(counts.values()) >= 0.98 * fair


# (groups, ns per handler): each handler is shorter than the burst of 10 ms, or the burst is larger than the slots. With
# longer handlers that all end at once, a quota would admit too few messages at that instant to make up for the wait.
# test_shares_under_quota.py has all other bursts.
TENANTS = [(1, 5 * MS), (1, 10 * MS), (4, 5 * MS), (4, 10 * MS), (30, 5 * MS), (30, 20 * MS), (30, 60 * MS)]


@given(
    st.lists(st.tuples(st.sampled_from([1.0, 2.0, 5.0, 10_000.0]), st.sampled_from(TENANTS)), min_size=2, max_size=5),
    st.integers(1, 12),
)
@example([(1.0, (1, 5 * MS))] * 4 + [(10_000.0, (4, 5 * MS))], 3)
@examples(40)
def test_backlogged_tenants_share_handler_time_by_weight(tenants, slots):
    """X2: without headroom, shares are max-min fair up to the tenants' own quotas, for any number of groups."""
    world, seconds = SchedulerWorld(slots, headroom=False), 3
    names = "abcde"[: len(tenants)]
    for name, (weight, (number, service)) in zip(names, tenants, strict=True):
        world.handler(name, service)
        backlogged(world, name, number, weight=weight, burst=max(1, number * 150 // 100))
    counts = world.counts(seconds * SECOND)
    demands = [150.0 * number * service / SECOND for _, (number, service) in tenants]
    fair = poured(slots, [weight for weight, _ in tenants], demands)
    for name, due, (_, (_, service)) in zip(names, fair, tenants, strict=True):
        # Tolerance: one slot at any time, and one message at either end.
        assert counts[name] * service / SECOND >= min(due * 0.93, due - 1) * seconds - 4 * service / SECOND


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["high", "mid", "low"]), st.integers(1, 30)), max_size=8
    ),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([10.0, 90.0, 150.0]),
)
@examples(40)
def test_priority_counts_only_inside_its_tenant(puts, slots, qps):
    """X3: a flood of `high` and a flood of `low` have the same effect on other tenants."""
    traces = []
    for band in ("high", "low"):
        world = SchedulerWorld(slots)
        for name in "abc":
            world.topic(name, qps=qps)
        backlogged(world, "flood", groups=3, band=band)
        for name, others, messages in puts:
            world.put(f"{name}/0/{others}", messages)
            world.run(20 * MS)
        world.run(SECOND)
        traces.append([(at, name if name[:5] != "flood" else "flood") for at, name, _ in world.trace])
    assert traces[0] == traces[1]


def waits_of(world, name, every, messages):
    """The waits of the messages of `name`, ns."""
    world.put_every(name, messages, every)
    arrivals = [world.now + n * every for n in range(messages)]
    trace = world.run(messages * every + 20 * SECOND)
    return [at - since for since, (at, queue, _) in zip(arrivals, [t for t in trace if t[1] == name], strict=True)]


def test_light_tenants_keep_their_latency_next_to_a_slow_one():
    """X9: headroom keeps slots free; without it they wait for the slow handlers."""
    longest = {}
    for headroom in (True, False):
        world = SchedulerWorld(slots=16, headroom=headroom)
        world.handler("slow", 5 * SECOND)
        for n in range(5):
            world.topic(f"light{n}", qps=100)
            world.put_every(f"light{n}/0/mid", 2_000, 13 * MS)
        world.run(3 * SECOND)
        backlogged(world, "slow")
        world.topic("probe", qps=100)
        longest[headroom] = max(waits_of(world, "probe/0/mid", 100 * MS, 50))
    assert longest[True] <= 20 * MS
    assert longest[False] >= SECOND


def test_single_light_tenant_keeps_its_latency_next_to_a_slow_one():
    """X9: with one message each 100 ms and no other tenant."""
    world = SchedulerWorld(slots=8)
    world.handler("slow", 5 * SECOND)
    world.topic("light", qps=100)
    world.put_every("light/0/mid", 30, 100 * MS)
    world.run(3 * SECOND)
    backlogged(world, "slow")
    assert max(waits_of(world, "light/0/mid", 100 * MS, 50)) <= 20 * MS


def test_heavy_tenant_without_messages_for_a_moment_stays_heavy():
    """X9: next to light tenants of high weight, a heavy tenant's fair share is a fraction of a slot. It has no ready
    message for some ms again and again, since payloads are read in portions and its quota admits single messages.
    """
    world, rng = SchedulerWorld(slots=24), Random(1)
    heavy = {"small": 100, "large": 300}
    for name, weight in heavy.items():
        world.topic(name, qps=PLENTY, weight=weight)
        world.handler(name, lambda: rng.randrange(180 * MS, 220 * MS))
    gaps = {f"light{n}/0/mid": (150 + 7 * n) * MS for n in range(12)}
    for name, gap in gaps.items():
        world.topic(name.split("/")[0], qps=100, weight=1_000)
        world.put_every(name, 140, gap)
    for turn in range(4_000):
        if turn == 1_000:  # by now the average of the light tenants is known
            world.trace.clear()
        world.run(5 * MS)
        for name in heavy:
            if not world.waiting[f"{name}/0/mid"]:
                world.put(f"{name}/0/mid", 16)
    served = Counter(queue.split("/")[0] for _, queue, _ in world.trace)
    waits = sorted(at % gaps[queue] for at, queue, _ in world.trace if queue in gaps)
    assert 2.5 <= served["large"] / served["small"] <= 3.2
    assert waits[len(waits) * 99 // 100] <= 10 * MS
    assert len(waits) > 900


@pytest.mark.parametrize("count", [1, 2, 5, 10, 40])
@pytest.mark.parametrize("qps", [150.0, 1_000.0, 1_000_000.0])
def test_no_slot_idles_while_tenants_are_backlogged(count, qps):
    """W: although all handlers end at once, which leaves each tenant without a slot for a moment. A lone tenant uses
    all slots.
    """
    world = SchedulerWorld(slots=16)
    for n in range(count):
        backlogged(world, f"t{n}", groups=20, qps=20 * qps)
    assert 16 * 100 * 5 == pytest.approx(sum(world.counts(5 * SECOND).values()), rel=0.01)


def test_handlers_that_never_end_hold_only_their_own_slots():
    """X9: until the node's `ack_wait` ends them, their slots count as their tenant's."""
    world = SchedulerWorld(slots=10)
    for n in range(4):
        world.topic(f"t{n}", qps=150)
        world.put_every(f"t{n}/0/mid", 1_000, 10 * MS)
    world.run(SECOND)
    world.handler("stuck", None)
    backlogged(world, "stuck")
    counts = world.counts(5 * SECOND)
    assert 1 <= counts["stuck"] <= 6
    assert all(counts[f"t{n}"] >= 490 for n in range(4))
    world.end("stuck")
    assert world.counts(SECOND)["stuck"] >= 1


def test_handler_of_a_thousand_times_its_estimate_is_charged_at_its_end():
    """X9."""
    world = SchedulerWorld(slots=1)
    for name in ("odd", "even"):
        backlogged(world, name, groups=20)
        world.handler(name, MS)
    world.run(SECOND)
    world.handler("odd", SECOND)
    while world.counts(MS)["odd"] == 0:
        pass
    world.handler("odd", MS)
    world.run(SECOND)
    # `even` had no slot for a second, so it has the next second for itself. Then both get half.
    assert {"even": 990} == pytest.approx(dict(world.counts(990 * MS)), abs=15)
    world.run(50 * MS)
    assert {"even": 2_000, "odd": 2_000} == pytest.approx(dict(world.counts(4 * SECOND)), rel=0.03)


def test_repeated_completions_have_no_effect():
    world = SchedulerWorld(slots=4)
    for name in "ab":
        backlogged(world, name, groups=4)
    done = world.scheduler.finish
    world.scheduler.finish = lambda *arguments: [done(*arguments) for _ in range(2)]
    counts = world.counts(5 * SECOND)
    assert counts["a"] == pytest.approx(counts["b"], rel=0.02)
    assert 4 * 500 == sum(counts.values())
