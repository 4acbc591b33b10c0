"""Long work in a thread leaves the interpreter as it was, also where two work at once (M)."""

import gc
import sys

import pytest

from evenlane.engine.base.background_work import unobtrusive


def now():
    return sys.getswitchinterval(), gc.isenabled()


def test_all_is_as_it_was_afterwards():
    before, within = now(), []

    def work():
        with unobtrusive():
            within.append(now())
            raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        work()
    assert before == now()
    ((switch_s, collects),) = within
    assert switch_s < before[0]
    assert not collects


def test_whoever_ends_first():
    """The one that began second ends last, or first."""
    before = now()
    for first_ends_first in (True, False):
        one, other = unobtrusive(), unobtrusive()
        one.__enter__()
        other.__enter__()
        for each in (one, other) if first_ends_first else (other, one):
            each.__exit__(None, None, None)
        assert before == now()
