"""Long work in a thread restores the interpreter's state, even if two pieces of work overlap."""

import gc
import sys

import pytest

from evenlane.engine.base.background_work import low_priority


def state():
    return sys.getswitchinterval(), gc.isenabled()


def test_failed_work_restores_switch_interval_and_garbage_collection():
    before, within = state(), []

    def work():
        with low_priority():
            within.append(state())
            raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        work()
    assert before == state()
    ((switch_s, collects),) = within
    assert switch_s < before[0]
    assert not collects


def test_overlapping_work_restores_the_state_in_any_order_of_ends():
    before = state()
    for first_ends_first in (True, False):
        one, other = low_priority(), low_priority()
        one.__enter__()
        other.__enter__()
        for each in (one, other) if first_ends_first else (other, one):
            each.__exit__(None, None, None)
        assert before == state()
