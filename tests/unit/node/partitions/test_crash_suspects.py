"""What blocked a process until it ended itself: an attempt counts, and the cause is known (F1, X11)."""

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.in_flight_record import InFlightListing
from evenlane.engine.node.partitions.crash_suspects import accused, blocked
from evenlane.ring.membership.records import BlockedLane, HeldLane, HeldRecord
from tests.support.node.world import World, topic

NAMED = InFlightListing(7, counts=True, confirmed=False, at=5)


def record(epoch, *sequences, created="s", kind="lanes"):
    return HeldRecord(id="a", epoch=epoch, blocked={kind: BlockedLane(created=created, sequences=[*sequences])})


def test_only_what_speaks_of_this_very_stream_is_believed():
    """F1, Z1: not of another stream, nor of one that was made anew; other keys say nothing."""
    other = HeldRecord(id="a", epoch=3, lanes={"lanes": HeldLane(created="s")})
    held = [record(1, 7), record(2, 8, created="older"), record(4, 9, kind="later"), other]
    assert {1: record(1, 7).blocked["lanes"]} == blocked(held, "lanes", "s")


@pytest.mark.parametrize(
    ("found", "dead", "sequences", "expected"),
    [
        ([], {1}, [7], [(7, True, True)]),  # no record named it: the first death counts
        ([NAMED], {1}, [7], [(7, False, True)]),  # one did: it is confirmed, and counts once
        ([NAMED._replace(confirmed=True)], {1}, [7], []),
        ([NAMED._replace(counts=False)], {1}, [7], [(7, True, True)]),
        ([], {2}, [7], []),  # the log has heard of that death already
        ([], {1}, [7, 8], [(7, True, False), (8, True, False)]),  # a batch: one of them
        ([NAMED], {1}, [7, 8], [(8, True, False)]),
    ],
)  # fmt: skip
def test_an_attempt_counts_once(found, dead, sequences, expected):
    """X11: once for each death, whoever names it."""
    blockers = {1: BlockedLane(created="s", sequences=sequences)}
    assert expected == [(each.sequence, each.counts, each.confirmed) for each in accused(blockers, dead, found)]


@pytest.mark.parametrize(("created", "seconds"), [("its own", 30), ("of another stream", 0)])
async def test_a_take_over_counts_for_how_long_the_process_was_blocked(created, seconds):
    """F1: that process can't be asked for its metrics any more, and an alert rests on this."""
    async with World(acme=topic()) as world:
        await world.put()
        lane = LaneId("lanes", 0)
        its = (await world.store.state(lane)).created if created == "its own" else created
        part = BlockedLane(created=its, sequences=[1, 2], seconds=30.3)
        node = await world.idle_node(None)
        await node.owned.open(0, 2, [HeldRecord(id="a", epoch=1, blocked={"lanes": part})])
        assert seconds == node.counters.ended_blocked_s
        await node.owned.open(1, 2)
        assert seconds == node.counters.ended_blocked_s
