"""The loads of partitions, against the formula applied group by group."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.ring.hashing import partition_of
from evenlane.ring.placement.load import Demand, partition_loads, queues_of

demands = st.lists(
    st.builds(
        Demand,
        st.text("abc", min_size=1, max_size=4),
        st.floats(0.001, 1e6),
        st.integers(1, 60),
        st.integers(1, 20),
        st.sampled_from(["consecutive", "hashed"]),
    ),
    max_size=12,
)
partition_counts = st.integers(1, 64)


@given(demands, partition_counts)
def test_partition_carries_the_shares_of_its_groups(listed, partitions):
    """E6: the oracle places each group by itself."""
    expected = [0.0] * partitions
    for each in listed:
        for group in range(each.groups):
            expected[partition_of(each.project, group, each.spread, partitions, each.layout)] += each.qps / each.groups
    assert pytest.approx(expected) == partition_loads(listed, partitions)


@given(demands, partition_counts, st.randoms())
def test_loads_do_not_depend_on_the_order_of_projects(listed, partitions, random):
    """E6, Z2: to the last bit, since the next leader must compute the same plan."""
    shuffled = random.sample(listed, len(listed))
    assert partition_loads(listed, partitions) == partition_loads(shuffled, partitions)


@given(demands, partition_counts, st.integers(1, 8))
def test_queues_are_counted_by_group_and_priority(listed, partitions, bands):
    counted = Counter(
        partition_of(each.project, group, each.spread, partitions, each.layout)
        for each in listed
        for group in range(each.groups)
    )
    assert [counted[partition] * bands for partition in range(partitions)] == queues_of(listed, partitions, bands)


@given(st.integers(1, 500), st.integers(1, 60), partition_counts)
def test_project_is_on_at_most_spread_partitions(groups, spread, partitions):
    """P13."""
    demand = Demand("acme", 100.0, groups, spread, "consecutive")
    loaded = {number for number, load in enumerate(partition_loads([demand], partitions)) if load}
    assert loaded == demand.partitions(partitions)
    assert 1 <= len(loaded) <= min(groups, spread, partitions)
