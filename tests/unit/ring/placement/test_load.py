"""What partitions carry: against the formula applied group by group."""

import math
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
    ),
    max_size=12,
)
partition_counts = st.integers(1, 64)


@given(demands, partition_counts)
def test_each_group_carries_its_share_on_its_partition(listed, partitions):
    """E6: the oracle lays down every group by itself."""
    expected = [0.0] * partitions
    for each in listed:
        for group in range(each.groups):
            expected[partition_of(each.project, group, each.spread, partitions)] += each.qps / each.groups
    assert pytest.approx(expected) == partition_loads(listed, partitions)


@given(demands, partition_counts, st.randoms())
def test_the_order_of_projects_changes_nothing(listed, partitions, random):
    """E6: to the last bit, as whoever leads next must come to the same plan."""
    shuffled = random.sample(listed, len(listed))
    assert partition_loads(listed, partitions) == partition_loads(shuffled, partitions)


@given(demands, partition_counts, st.integers(1, 8))
def test_queues_are_counted_by_group_and_priority(listed, partitions, bands):
    counted = Counter(
        partition_of(each.project, group, each.spread, partitions) for each in listed for group in range(each.groups)
    )
    assert [counted[partition] * bands for partition in range(partitions)] == queues_of(listed, partitions, bands)


@given(st.integers(1, 500), st.integers(1, 60), partition_counts)
def test_a_project_lies_on_few_partitions(groups, spread, partitions):
    """P13."""
    demand = Demand("acme", 100.0, groups, spread)
    loaded = {number for number, load in enumerate(partition_loads([demand], partitions)) if load}
    assert loaded == demand.partitions(partitions)
    assert 1 <= len(loaded) <= min(groups, spread, partitions)


def test_nothing_is_lost():
    listed = [Demand(f"p{number}", 10.1 * number, number, 12) for number in range(1, 300)]
    assert pytest.approx(math.fsum(each.qps for each in listed)) == math.fsum(partition_loads(listed, 128))
