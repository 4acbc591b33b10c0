"""Messages that blocked a process until it ended itself: an attempt is counted, and the cause is known (F1, X11)."""

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.in_flight_set import InFlightListing
from evenlane.engine.node.partitions.crash_suspects import choose_accused, find_blocked
from evenlane.ring.membership.records import BlockedLane, HeldLane, HeldRecord
from tests.support.node.world import World, topic

NAMED = InFlightListing(7, counts=True, confirmed=False, at=5)


def record(epoch, *sequences, created="s", kind="lanes"):
    return HeldRecord(id="a", epoch=epoch, blocked={kind: BlockedLane(created=created, sequences=[*sequences])})


def test_blocked_ignores_records_of_other_streams():
    """F1, Z1: and of a stream that was replaced since."""
    other = HeldRecord(id="a", epoch=3, lanes={"lanes": HeldLane(created="s")})
    held = [record(1, 7), record(2, 8, created="older"), record(4, 9, kind="later"), other]
    assert {1: record(1, 7).blocked["lanes"]} == find_blocked(held, "lanes", "s")


@pytest.mark.parametrize(
    ("found", "dead", "sequences", "expected"),
    [
        ([], {1}, [7], [(7, True, True)]),  # no record named it: the first death counts
        ([NAMED], {1}, [7], [(7, False, True)]),  # a record did: it is confirmed, and counts once
        ([NAMED._replace(confirmed=True)], {1}, [7], []),
        ([NAMED._replace(counts=False)], {1}, [7], [(7, True, True)]),
        ([], {2}, [7], []),  # the log has that death already
        ([], {1}, [7, 8], [(7, True, False), (8, True, False)]),  # a batch: one of them
        ([NAMED], {1}, [7, 8], [(8, True, False)]),
    ],
)  # fmt: skip
def test_death_counts_one_attempt(found, dead, sequences, expected):
    """X11: whether an in-flight record, the key of the owner, or both name the message."""
    blockers = {1: BlockedLane(created="s", sequences=sequences)}
    assert expected == [(each.sequence, each.counts, each.confirmed) for each in choose_accused(blockers, dead, found)]


@pytest.mark.parametrize(("created", "seconds"), [("its own", 30), ("of another stream", 0)])
async def test_takeover_counts_the_seconds_of_a_block(created, seconds):
    """F1: the blocked process can't report its metrics any more, and an alert needs them."""
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
