"""Shares of tenants whose own quota holds them up from time to time (X2)."""

from itertools import permutations

from hypothesis import example, given
from hypothesis import strategies as st

from evenlane.priority.fair import OVERHEAD
from tests.oracles.examples import examples
from tests.oracles.maxmin import poured
from tests.oracles.passing import Bucket, Passing, Tenant
from tests.support.scheduler.parts import MS, SECOND
from tests.support.scheduler.world import SchedulerWorld
from tests.unit.core.scheduler.backlogs import PLENTY, backlogged

GROUP_QPS = 150.0
WEIGHTS = st.sampled_from([1.0, 2.0, 5.0, 10_000.0])
GROUPS = st.sampled_from([1, 4, 30])
SERVICES = st.sampled_from([5 * MS, 10 * MS, 20 * MS, 60 * MS])
SLOTS = st.integers(1, 12)
# The last tenant's quota is worth 3 slots. All handlers end at once each 5 ms, and a burst of 1 has two tokens then.
HEAVY_NEXT_TO_LIGHT = [(1.0, 1, 5 * MS)] * 4 + [(10_000.0, 4, 5 * MS)]


@given(st.lists(st.tuples(WEIGHTS, GROUPS, SERVICES, st.sampled_from([1, 2, 6, 45])), min_size=2, max_size=5), SLOTS)
@example([(*each, 1) for each in HEAVY_NEXT_TO_LIGHT], 3)
@example([(1.0, 1, 5 * MS, 1), (10_000.0, 1, 5 * MS, 1)], 4)  # the node is idle again and again
@examples(40)
def test_each_gap_in_its_quota_costs_a_tenant_at_most_one_message_of_each_other(tenants, slots):
    """X2: for any burst, and handlers that all end at once. A slot that becomes free while the quota has no token goes
    to another tenant, in any scheduler that leaves no slot idle.
    """
    world, audited = SchedulerWorld(slots, headroom=False), {}
    for name, (weight, groups, service, burst) in zip("abcde", tenants, strict=False):
        world.topic(name, qps=GROUP_QPS * groups, groups=groups, weight=weight, burst=burst, borrow=False)
        world.handler(name, service)
        world.put(f"{name}/0/mid")
        world.run(SECOND)  # now its handler time is known, and its buckets are full
    world.trace.clear()
    for name, (weight, groups, service, burst) in zip("abcde", tenants, strict=False):
        for group in range(groups):
            world.put(f"{name}/{group}/mid", PLENTY)
        of_group = {str(group): bucket(GROUP_QPS, -(-burst // groups), world.now) for group in range(groups)}
        audited[name] = Tenant(weight, service + int(OVERHEAD), bucket(GROUP_QPS * groups, burst, world.now), of_group)
    passing = Passing(audited, int(OVERHEAD))
    for at, queue, _ in world.run(2 * SECOND):
        name, group, _ = queue.split("/")
        passing.start(at, name, group, world.service[name])
    for one, other in permutations(audited, 2):
        assert passing.excess(one, other) <= 1.001 * passing.bound(one, other)


def bucket(rate, burst, now):
    """A full bucket. A burst of 1 keeps a second token while messages wait."""
    return Bucket(rate, max(burst, 2), burst, now)


@given(st.lists(st.tuples(WEIGHTS, GROUPS, SERVICES), min_size=2, max_size=5), SLOTS)
@example(HEAVY_NEXT_TO_LIGHT, 3)
@examples(40)
def test_burst_of_the_longest_handler_time_gives_each_tenant_its_share(tenants, slots):
    """X2: the bucket keeps the tokens that arrive while all slots are taken, and one more for the fraction."""
    world, seconds = SchedulerWorld(slots, headroom=False), 3
    names = "abcde"[: len(tenants)]
    longest = max(service for _, _, service in tenants)
    for name, (weight, groups, service) in zip(names, tenants, strict=True):
        world.handler(name, service)
        burst = min(slots, -int(-GROUP_QPS * groups * longest // SECOND)) + 1
        backlogged(world, name, groups, weight=weight, burst=burst)
    counts = world.counts(seconds * SECOND)
    demands = [GROUP_QPS * groups * service / SECOND for _, groups, service in tenants]
    fair = poured(slots, [weight for weight, _, _ in tenants], demands)
    for name, due, (_, _, service) in zip(names, fair, tenants, strict=True):
        # Tolerance: one slot at any time, and one message at either end.
        assert counts[name] * service / SECOND >= min(due * 0.93, due - 1) * seconds - 4 * service / SECOND


def test_claims_survive_an_instant_at_which_all_handlers_end():
    """X2: both tenants have two tokens by then, so the scheduler isn't idle, and the shares don't start over."""
    world = SchedulerWorld(slots=2, headroom=False)
    for name, weight in {"light": 1.0, "heavy": 10_000.0}.items():
        world.handler(name, 14 * MS)
        backlogged(world, name, weight=weight)
    started = [(at // MS, name.split("/")[0]) for at, name, _ in world.run(15 * MS)]
    assert [(0, "light"), (0, "heavy"), (14, "heavy"), (14, "heavy")] == started
