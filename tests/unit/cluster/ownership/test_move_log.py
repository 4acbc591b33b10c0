"""The log of partition moves: what it says of plans that can't be carried out, and of releases answered late."""

from collections import Counter

import pytest
from structlog.testing import capture_logs

from evenlane.engine.cluster.ownership.move_log import MoveLog
from evenlane.ring.membership.actions import Acquire, Close, Release
from evenlane.ring.membership.member import Member
from tests.support.until import until

_LEASE, _TRUSTED, _NOW = 1, 10**18, 1


@pytest.fixture
def log():
    with capture_logs() as lines:
        yield lines


def owner_of(partitions):
    """A member that owns these partitions by the plan of generation 1."""
    member = Member(_LEASE, _TRUSTED)
    member.on_listing(1, {}, _NOW)
    for action in member.on_plan(1, 1, partitions, _NOW):
        if isinstance(action, Acquire):
            member.on_acquired(action.partition, 2 + action.partition, _NOW)
            member.on_opened(action.partition, 2 + action.partition, _NOW)
    return member


def lines(log):
    return [line for line in log if line["log_level"] != "debug"]


async def test_unfinished_plan_is_not_silent(log):
    """Z5: a partition can't be taken over. After an interval a line says which are missing."""
    member = owner_of([0, 1])
    member.on_plan(2, 2, [0, 1, 2, 3, 5], _NOW)
    moves = MoveLog("online", member, Counter(), interval_s=0)
    moves.note_acquired(0, 2, held=0, took_s=0.1)
    moves.note_acquired(1, 3, held=0, took_s=0.1)
    await until(lambda: lines(log))
    [line] = lines(log)
    assert ("partitions moved", 2, 2) == (line["event"], line["partitions"], line["generation"])
    assert (2, "0-1", "2-3,5") == (line["acquired"], line["acquired_partitions"], line["missing"])


async def test_release_counts_once_if_the_watch_is_faster_than_the_answer(log):
    """Z5: the plan's line has all releases, also those whose transaction is answered after the plan is carried out."""
    member, counts = owner_of([4]), Counter()
    moves = MoveLog("online", member, counts)
    actions = member.on_plan(2, 2, [], _NOW) + member.tick(_NOW)
    [close] = [action for action in actions if isinstance(action, Close)]
    assert [Release(4, 6)] == member.on_closed(*close)
    moves.note_releasing(4, 6)
    moves.flush()
    assert [] == lines(log), "the release isn't complete"
    member.on_owner_delete(4, 9, _NOW)
    moves.note_plan(0, 2)
    moves.note_released(4, 6, epoch=6, held=0)
    moves.close()
    assert [("standing by", 1, "4")] == [
        (line["event"], line["released"], line["released_partitions"]) for line in lines(log)
    ]
    assert {"released": 1} == counts


async def test_partitions_of_one_event_are_lost_in_one_warning(log):
    member, counts = owner_of([0, 1, 2]), Counter()
    moves = MoveLog("online", member, counts)
    for partition in (0, 1, 2):
        moves.note_lost(partition, 2 + partition)
    await until(lambda: lines(log))
    moves.note_lost(2, 9)
    moves.close()
    assert [("lost", 3, "0-2"), ("lost", 1, "2")] == [
        (line["event"], line["count"], line["lost_partitions"]) for line in lines(log)
    ]
    assert {"lost": 4} == counts
