"""Which keys move when a quota changes: none but those that must (E3, K6; a raised quota never reshuffles keys)."""

from collections import Counter
from math import sqrt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.quota.topics.topic import Accepted, accept, complete, parse_spec
from evenlane.ring.hashing import group_of, partition_of

KEYS = [f"order-{number}" for number in range(20_000)]


def after(before: Accepted | None, revision: int, **fields: object) -> Accepted:
    return accept(complete(parse_spec(msgspec.json.encode(fields)), ClusterConfig(), before), revision, before)


@given(st.text(max_size=20), st.integers(1, 400), st.integers(1, 400))
def test_a_key_stays_or_goes_to_a_new_group(key, one, other):
    """Raised: to an added one. Lowered: only those of groups that are taken away move."""
    few, many = sorted((one, other))
    before, now = group_of(key, few), group_of(key, many)
    assert now == before or few <= now < many


@pytest.mark.parametrize(("before", "now"), [(1, 2), (2, 3), (2, 8), (8, 9), (8, 16), (20, 21), (200, 220)])
def test_how_many_move(before, now):
    """From g to h groups (h - g) / h of the keys, and each added group gets its even part of them."""
    share = (now - before) / now
    moved = Counter(group_of(key, now) for key in KEYS if group_of(key, now) != group_of(key, before))
    spread = sqrt(len(KEYS) * share * (1 - share))
    assert abs(moved.total() - share * len(KEYS)) < 4 * spread
    assert set(range(before, now)) == set(moved)
    each = len(KEYS) / now
    assert all(abs(count - each) < 5 * sqrt(each) for count in moved.values())


@pytest.mark.parametrize(
    ("quotas", "groups", "moved"),
    [
        ((100, 400), (2, 8), 0.75),
        ((1_000, 1_050), (20, 21), 1 / 21),
        ((400, 50), (8, 1), 7 / 8),
        ((100, 99), (2, 2), 0),
    ],
)
def test_by_the_quota_alone(quotas, groups, moved):
    """With the defaults: 50 QPS a group. The kept groups stay in their partitions, too."""
    before = after(None, 1, qps=quotas[0])
    now = after(before, 2, qps=quotas[1])
    assert groups == (before.active, now.active)
    assert moved == pytest.approx(
        sum(group_of(k, groups[0]) != group_of(k, groups[1]) for k in KEYS) / len(KEYS), abs=0.02
    )
    places = [[partition_of("acme", n, each.topic.spread, 128) for n in range(min(groups))] for each in (before, now)]
    assert places[0] == places[1]


def test_lowering_takes_no_group_away_that_was_ever_in_use():
    """They drain; a group that is taken again is simply active, and keys are where they were."""
    up = after(after(None, 1, qps=100), 2, qps=400)
    down = after(up, 3, qps=50)
    assert (1, (1, 2, 3, 4, 5, 6, 7)) == (down.active, down.draining)
    again = after(down, 4, qps=200)
    assert (4, (4, 5, 6, 7)) == (again.active, again.draining)


def test_an_ordered_topic_keeps_its_groups_until_it_is_drained():
    """K6: whatever its quota is, a key's messages go where those before them wait."""
    first = after(None, 1, qps=100, ordered=True)
    raised = after(first, 2, qps=300, ordered=True)
    lowered = after(raised, 3, qps=50, ordered=True)
    drained = after(lowered, 4, qps=50, ordered=True, state="draining")
    assert [(2, ())] * 4 == [(each.active, each.draining) for each in (first, raised, lowered, drained)]
    resumed = after(drained, 5, qps=400, ordered=True)
    assert (8, ()) == (resumed.active, resumed.draining)
