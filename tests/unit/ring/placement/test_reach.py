"""The change of a node's reach, against the reach computed from the beginning."""

from hypothesis import given
from hypothesis import strategies as st

from evenlane.ring.placement.assignment import NOBODY
from evenlane.ring.placement.reach import reach, reach_change

PARTITIONS, WIDTH = 40, 7
every = st.integers(0, PARTITIONS - 1)


@given(st.sets(every), st.data())
def test_change_is_the_difference_of_two_reaches(spots, data):
    """P13."""
    minus = data.draw(st.sampled_from([NOBODY, *sorted(spots)]))
    plus = data.draw(st.sampled_from([NOBODY, *sorted(set(range(PARTITIONS)) - spots)]))
    after = sorted((spots - {minus}) | ({plus} - {NOBODY}))
    changed = reach_change(sorted(spots), minus, plus, PARTITIONS, WIDTH)
    assert changed == reach(after, PARTITIONS, WIDTH) - reach(sorted(spots), PARTITIONS, WIDTH)
