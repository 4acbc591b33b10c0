"""The partitions whose backlogs are delivered, so that later arrivals are new messages (X7, fault 1)."""

from types import SimpleNamespace

import pytest

from evenlane.engine.node.partitions.stable_streams import stable_streams

SECOND = 1_000_000_000
QUIET = 3 * SECOND


def partition(**fields):
    """A partition that was opened at 100 s and is fed to its end; `fields` change that."""
    given = {"epoch": 7, "generation": 0, "is_catching_up": False, "fed_to": 50, "high": 50, **fields}
    known = {name: given.pop(name) for name in ("opened", "opened_at") if name in given}
    lane, later = SimpleNamespace(**given), SimpleNamespace(generation=0)
    whole = {"opened": True, "opened_at": 100 * SECOND, "lane": lane, "lanes": (lane, later), **known}
    return SimpleNamespace(**whole)


def streams(at_s, **fields):
    """The stable streams of a stable partition, and of one with `fields`."""
    return stable_streams({3: partition(), 4: partition(**fields)}, round(at_s * SECOND), QUIET)


def test_delivered_partitions_are_stable():
    assert streams(103) == frozenset({(3, 7, 0, 0), (4, 7, 0, 0)})
    assert stable_streams({}, 0, QUIET) == frozenset()


@pytest.mark.parametrize(
    "fields",
    [
        {"opened": False},
        {"is_catching_up": True},  # a large backlog
        {"fed_to": 49},  # a small backlog
        {"opened_at": 101 * SECOND},  # overdue messages may still arrive
    ],
)
def test_undelivered_partition_makes_all_unknown(fields):
    assert streams(103.5, **fields) is None


def test_deleted_last_message_is_awaited_for_ten_seconds():
    """E12: a catch-up is awaited until its end."""
    assert streams(109, fed_to=49) is None
    assert streams(110, fed_to=49) is not None
    assert streams(1_000, is_catching_up=True) is None


@pytest.mark.parametrize("fields", [{"epoch": 8}, {"generation": 1}])
def test_takeover_or_replacement_changes_the_streams(fields):
    assert streams(103, **fields) not in {streams(103), None}


def test_replaced_delay_stream_changes_the_streams():
    other = partition()
    other.lanes[1].generation = 1
    assert stable_streams({3: partition(), 4: other}, 103 * SECOND, QUIET) != streams(103)
