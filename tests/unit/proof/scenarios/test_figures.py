"""Figures for bars, against traces and numbers computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.proof.figures import (
    busy,
    dwell,
    filter_since,
    percentile,
    ratio,
    shares,
    shares_on_nodes,
    utilisation,
    worst_window,
)
from evenlane.engine.proof.load.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.load.load import CLUSTER_CONFIG, Arrival, Load, tenant
from evenlane.engine.proof.load.trace import NEVER, Trace
from tests.oracles.examples import examples


def trace(*messages, until=10, weights=(1,)):
    """Return a trace of messages (tenant, put, started, ended), in seconds; None if it didn't start or end."""
    tenants = [tenant(f"t{n}", qps=100, weight=weight) for n, weight in enumerate(weights)]
    come = [Arrival(int(put * SECOND), of, 0, 1, SECOND) for of, put, _started, _ended in messages]
    made = Trace(Load.of(tenants, come, until * SECOND))
    for n, (_of, _put, started, ended) in enumerate(messages):
        made.started[n] = NEVER if started is None else int(started * SECOND)
        made.ended[n] = NEVER if ended is None else int(ended * SECOND)
    return made


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7], 0.99, 7),
        ([1, 2, 3, 4], 0.5, 2),
        ([1, 2, 3, 4], 0.51, 3),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 102)), 0.99, 100),
        ([1, 2], 0.0, 1),
        ([1, 2], 1.0, 2),
    ],
)
def test_percentile_has_the_nearest_rank(values, share, expected):
    assert expected == percentile(values, share)


def test_dwell_has_times_of_served_messages_and_their_share():
    seen = trace((0, 0, 1, 3), (0, 1, 1, 2), (0, 2, 9, 11), (0, 3, None, None))
    figures = dwell(seen, range(4))
    assert (4, 0.5) == (figures["offered"], figures["served"])
    assert (0, 1000, 1000) == tuple(figures[f"wait_{name}_ms"] for name in ("p50", "p99", "max"))
    assert (1000, 3000, 3000) == tuple(figures[f"dwell_{name}_ms"] for name in ("p50", "p99", "max"))


def test_dwell_counts_from_the_actual_put():
    seen = trace((0, 1, 4, 5))
    seen.put[0] = 2 * SECOND
    figures = dwell(seen, [0])
    assert (2000, 3000) == (figures["wait_max_ms"], figures["dwell_max_ms"])


def test_starved_system_has_no_dwell():
    figures = dwell(trace((0, 0, None, None)), [0])
    assert (None, None, 0) == (figures["dwell_p99_ms"], figures["wait_p50_ms"], figures["served"])
    assert None is ratio(figures["dwell_p99_ms"], 45.0)


def test_since_uses_planned_times():
    assert [1, 2] == filter_since(trace((0, 1, 1, 2), (0, 2, 3, 4), (0, 3, 4, 5)), range(3), 2 * SECOND)


def test_busy_counts_slots_in_the_window():
    seen = trace((0, 0, 1, 3), (0, 0, 2, 6), (0, 0, 5, None), (0, 0, None, None))
    assert 1 + 2 == busy(seen, 2 * SECOND, 4 * SECOND)
    assert 1 == busy(seen, 2 * SECOND, 4 * SECOND, [0, 2])
    assert 1 + 1 == busy(seen, 5 * SECOND, 6 * SECOND, [1, 2]), "running messages fill the window"
    assert 0.75 == utilisation(seen, 2, 2 * SECOND, 4 * SECOND)


def test_shares_on_nodes_are_relative_to_the_weights_on_each_node():
    """Tenant 0 has 3 of its 4 groups on node 0, tenant 1 one of 4: there 3 : 1 is even, and 1 : 1 is not."""
    tenants = [tenant(f"t{n}", CLUSTER_CONFIG, qps=100, weight=1, groups=4, spread=4) for n in range(2)]
    where = Parts([[[0, 1, 2], [3]], [[0], [1, 2, 3]]])
    come = [Arrival(0, of, group, 1, SECOND) for of, group in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))]
    made = Trace(Load.of(tenants, come * 9, 10 * SECOND, CLUSTER_CONFIG), where=where)
    for n, message in enumerate(made.load):
        if n < 4:  # one from each group on node 0
            made.started[n], made.ended[n] = 0, message.service
    assert [1, 1] == shares_on_nodes(made, 0, 2 * SECOND)
    made.started[1] = made.ended[1] = made.started[2] = made.ended[2] = NEVER
    assert [pytest.approx(2 / 3), 2] == shares_on_nodes(made, 0, 2 * SECOND)
    assert [1] == shares_on_nodes(made, 0, 2 * SECOND, but="t1")
    assert [1, 1] == shares(made, 0, 2 * SECOND), "by whole weights it looks even"


class Parts:
    """A given placement: for each tenant, its groups on each node."""

    nodes = 2

    def __init__(self, groups):
        self._groups = groups

    def groups_of(self, of):
        return self._groups[int(of.name[1:])]

    def node_of(self, of, group):
        return next(node for node, own in enumerate(self.groups_of(of)) if group in own)


def test_worst_window_is_half_open():
    seen = trace(*((0, 0, at, at + 1) for at in (0, 0.5, 1.0, 1.25, 1.4999, 1.5, 7)))
    assert 4 == worst_window(seen, range(7)), "0.5 to 1.4999: 1.5 is a full second later"
    assert 2 == worst_window(seen, [0, 1, 2, 6])
    assert 0 == worst_window(trace((0, 0, None, None)), [0])


@examples(100)
@given(st.lists(st.integers(0, 5_000), max_size=40))
def test_worst_window_equals_an_exhaustive_search(instants):
    seen = trace(*((0, 0, at / 1000, None) for at in sorted(instants)))
    starts = list(seen.started)
    everywhere = (sum(1 for at in starts if low <= at < low + SECOND) for low in range(0, 5 * SECOND + 1, MILLISECOND))
    assert max(everywhere, default=0) == worst_window(seen, range(len(starts)))


def test_shares_are_relative_to_max_min_by_weight():
    """Two tenants of weight 1 and 3 want all, and one wants 1 s: 1.75, 5.25 and 1 of the 8 s used are due."""
    hungry = [(0, 0, at, at + 1) for at in (0, 1, 2, 3)] + [(1, 0, at, at + 1) for at in (0, 1, 2)]
    seen = trace(*hungry, (2, 0, 0, 1), *[(0, 0, None, None), (1, 0, None, None)] * 9, weights=(1, 3, 1))
    assert pytest.approx([4 / 1.75, 3 / 5.25, 1]) == shares(seen, 0, 10 * SECOND)


def test_shares_skip_tenants_without_demand_in_the_window():
    seen = trace((0, 0, 0, 1), (1, 0, 2, 3), (1, 0, 3, 4), weights=(1, 1))
    assert [1] == shares(seen, 2 * SECOND, 4 * SECOND)
