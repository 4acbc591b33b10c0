"""A change of a quota moves only the keys that must move, and a raise never reshuffles them (E3, K6)."""

from collections import Counter
from math import sqrt

import msgspec
import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.quota.topics.topic import Accepted, accept, complete, parse_spec
from evenlane.ring.hashing import group_of, partition_of

KEYS = [f"order-{number}" for number in range(20_000)]


def after(before: Accepted | None, revision: int, **fields: object) -> Accepted:
    return accept(complete(parse_spec(msgspec.json.encode(fields)), ClusterConfig(), before), revision, before)


@pytest.mark.parametrize(("before", "now"), [(1, 2), (2, 3), (2, 8), (8, 9), (8, 16), (20, 21), (200, 220)])
def test_share_of_moved_keys_is_minimal(before, now):
    """E3: from g to h groups, (h - g) / h of the keys move, all of them to added groups. All groups are even."""
    share = (now - before) / now
    moved = Counter(group_of(key, now) for key in KEYS if group_of(key, now) != group_of(key, before))
    spread = sqrt(len(KEYS) * share * (1 - share))
    assert abs(moved.total() - share * len(KEYS)) < 4 * spread
    assert set(range(before, now)) == set(moved)
    each = len(KEYS) / now
    assert all(abs(count - each) < 5 * sqrt(each) for count in moved.values())
    assert all(abs(count - each) < 5 * sqrt(each) for count in Counter(group_of(key, now) for key in KEYS).values())


@pytest.mark.parametrize(
    ("quotas", "groups", "moved"),
    [
        ((100, 400), (2, 8), 0.75),
        ((1_000, 1_050), (20, 21), 1 / 21),
        ((400, 50), (8, 1), 7 / 8),
        ((100, 99), (2, 2), 0),
    ],
)
def test_change_of_quota_moves_keys_by_the_default_groups(quotas, groups, moved):
    """E3: by default a group has 50 QPS. The kept groups also stay in their partitions."""
    before = after(None, 1, qps=quotas[0])
    now = after(before, 2, qps=quotas[1])
    assert groups == (before.active, now.active)
    assert moved == pytest.approx(
        sum(group_of(k, groups[0]) != group_of(k, groups[1]) for k in KEYS) / len(KEYS), abs=0.02
    )
    places = [
        [partition_of("acme", n, each.topic.spread, 128, "hashed") for n in range(min(groups))]
        for each in (before, now)
    ]
    assert places[0] == places[1]


def test_lowered_quota_drains_groups_and_a_raise_reuses_them():
    """K6: the keys return to their groups."""
    up = after(after(None, 1, qps=100), 2, qps=400)
    down = after(up, 3, qps=50)
    assert (1, (1, 2, 3, 4, 5, 6, 7)) == (down.active, down.draining)
    again = after(down, 4, qps=200)
    assert (4, (4, 5, 6, 7)) == (again.active, again.draining)


def test_ordered_topic_keeps_its_groups_until_drained():
    """K6: at any quota, a key's messages follow those that already wait."""
    first = after(None, 1, qps=100, ordered=True)
    raised = after(first, 2, qps=300, ordered=True)
    lowered = after(raised, 3, qps=50, ordered=True)
    drained = after(lowered, 4, qps=50, ordered=True, state="draining")
    assert [(2, ())] * 4 == [(each.active, each.draining) for each in (first, raised, lowered, drained)]
    resumed = after(drained, 5, qps=400, ordered=True)
    assert (8, ()) == (resumed.active, resumed.draining)
