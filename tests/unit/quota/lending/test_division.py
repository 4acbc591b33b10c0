"""The part of a topic that each node gets (W, Q)."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.lending.division import LEAST, divide
from tests.oracles.examples import examples

parts = st.just(0.0) | st.floats(1e-6, 1)
nodes = st.lists(st.tuples(st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0]) | parts, parts), min_size=1, max_size=8)


def _world(given_nodes):
    whole = sum(own for own, _ in given_nodes)
    scale = 1 / whole if whole else 0
    own = {f"n{i}": part * scale for i, (part, _) in enumerate(given_nodes)}
    return own, {f"n{i}": want for i, (_, want) in enumerate(given_nodes)}


@given(nodes)
@examples(300)
def test_parts_add_up_to_the_whole(given_nodes):
    """Q, W."""
    own, wants = _world(given_nodes)
    due = divide(own, wants)
    assert own.keys() == due.keys()
    assert all(part >= -1e-12 for part in due.values())
    assert isclose(sum(own.values()), sum(due.values()), abs_tol=1e-9)


@given(nodes)
@examples(300)
def test_node_keeps_its_own_part_up_to_its_demand(given_nodes):
    """X1: except for the small part that goes to nodes without groups."""
    own, wants = _world(given_nodes)
    due = divide(own, wants)
    homeless = sum(min(wants[n], LEAST) for n in own if own[n] == 0)
    for node, part in own.items():
        assert due[node] >= min(part, wants[node]) * max(0.0, 1 - homeless / max(sum(own.values()), 1e-9)) - 1e-9


@given(nodes)
@examples(300)
def test_no_node_keeps_unused_quota_while_another_is_short(given_nodes):
    """W: except for the small part that each node keeps."""
    own, wants = _world(given_nodes)
    due = divide(own, wants)
    short = [node for node in own if due[node] < wants[node] - 1e-9]
    if short:
        for node, part in own.items():
            assert due[node] <= max(wants[node], LEAST * part, LEAST) + 1e-9


@pytest.mark.parametrize(
    ("own", "wants", "due"),
    [
        ((0.5, 0.5), (0.2, 0.9), (0.2, 0.8)),
        ((0.5, 0.5), (0.9, 0.9), (0.5, 0.5)),
        ((0.5, 0.5), (0.1, 0.5), (0.3, 0.7)),
        ((1 / 3, 1 / 3, 1 / 3), (0.04, 0.13, 0.76), (0.0633333, 0.1533333, 0.7833333)),
        ((0.4, 0.4, 0.2), (0.1, 0.5, 0.9), (0.1, 0.5, 0.4)),
        ((1.0, 0.0), (1.0, 0.5), (0.98, 0.02)),
    ],
)
def test_division_matches_hand_computed_parts(own, wants, due):
    divided = divide({f"n{i}": part for i, part in enumerate(own)}, {f"n{i}": part for i, part in enumerate(wants)})
    assert pytest.approx(due, abs=1e-6) == tuple(divided.values())
