"""Batches of the accepted-topic writer fit into etcd's transactions."""

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.control.topics.accepted_writer import batches
from evenlane.ring.coordination.ports import PutKey

_ops = st.lists(st.binary(max_size=20), min_size=1, max_size=2)


@given(st.lists(_ops), st.integers(2, 5), st.integers(1, 40))
def test_batches_keep_order_and_bounds(changes, most, most_bytes):
    writes = [[PutKey(f"{n}.{m}", value) for m, value in enumerate(values)] for n, values in enumerate(changes)]
    parts = list(batches(writes, most, most_bytes))
    assert [op for together in writes for op in together] == [op for part in parts for op in part]
    for part in parts:
        projects = {op.key.split(".")[0] for op in part}
        assert 1 <= len(part) <= most
        assert len(projects) == 1 or sum(len(op.value) for op in part) <= most_bytes
    assert sum(len({op.key.split(".")[0] for op in part}) for part in parts) == len(writes)
