"""From when on what comes in has just been put (X7, fault 1)."""

from types import SimpleNamespace

import pytest

from evenlane.engine.node.partitions.stable_streams import stable_streams

SECOND = 1_000_000_000
QUIET = 3 * SECOND


def partition(**fields):
    """Open since 100 s, and all read; `lane` fields as given."""
    given = {"epoch": 7, "generation": 0, "catching_up": False, "fed_to": 50, "high": 50, **fields}
    known = {name: given.pop(name) for name in ("opened", "opened_at") if name in given}
    later = SimpleNamespace(generation=0)
    whole = {"opened": True, "opened_at": 100 * SECOND, "lane": SimpleNamespace(**given), "later": later, **known}
    return SimpleNamespace(**whole)


def fed(at_s, **fields):
    return stable_streams({3: partition(), 4: partition(**fields)}, round(at_s * SECOND), QUIET)


def test_all_that_was_there_is_in():
    assert fed(103) == frozenset({(3, 7, 0, 0), (4, 7, 0, 0)})
    assert stable_streams({}, 0, QUIET) == frozenset()


@pytest.mark.parametrize(
    "fields",
    [
        {"opened": False},
        {"catching_up": True},  # a large backlog
        {"fed_to": 49},  # a small one
        {"opened_at": 101 * SECOND},  # what was overdue may still come in
    ],
)
def test_nothing_is_known_until_then(fields):
    assert fed(103.5, **fields) is None


def test_an_end_that_was_deleted_never_comes_in():
    """E12: it is waited for ten seconds; a backlog that is still being read is waited for to its end."""
    assert fed(109, fed_to=49) is None
    assert fed(110, fed_to=49) is not None
    assert fed(1_000, catching_up=True) is None


@pytest.mark.parametrize("fields", [{"epoch": 8}, {"generation": 1}])
def test_others_are_not_the_same(fields):
    """Taken over again in between, or the stream was replaced: counters say nothing."""
    assert fed(103, **fields) not in {fed(103), None}


def test_a_later_stream_that_was_replaced_is_another():
    other = partition()
    other.later.generation = 1
    assert stable_streams({3: partition(), 4: other}, 103 * SECOND, QUIET) != fed(103)
