"""What waits for a subscription in all projects, from its streams and settle logs (K10)."""

import pytest

from evenlane.engine.admin.backlog.settle_unowned import make_drop
from evenlane.engine.admin.backlog.totals import BacklogTotals, count_after_reset, count_skipped, count_totals
from evenlane.engine.base.names import LaneId
from evenlane.engine.control.subscriptions.start_point import StartPoint
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.ports import Head
from evenlane.engine.core.queue.subscriber import Subscriber
from evenlane.engine.core.records import settle_record
from evenlane.engine.core.wire.headers import DUE, ORIGIN, encode
from tests.support.subscription_world import ENV, NAME, SubscriptionWorld

HOUR = 3_600 * 10**9
LANE, LATER, AGAIN = (LaneId(kind, 1) for kind in ("lanes", "later", "again"))


@pytest.fixture
async def world():
    made = SubscriptionWorld()
    await made.open()
    await made.creation().run()
    yield made
    await made.close()


async def test_reset_to_new_skips_what_waits_and_retries(world):
    """K10: what is settled above the watermark doesn't count, nor what isn't due."""
    await world.put(LANE, 10)
    await world.put(LATER, 2)
    await world.own.put(f"again.online_{NAME}.1.acme.0.mid.500000", b"", b"x")
    await settle_all_but_first(world)
    known = await subscriber_of(world)
    assert 2 == await count_skipped(world.own, world.config, known)
    assert BacklogTotals(1, 3) == await count_totals(world.own, world.config, known)


async def subscriber_of(world):
    return Subscriber(is_named=True, chosen=(await world.known())[NAME].filter)


async def test_reset_brings_what_is_stored_since_a_time(world):
    """K10: what is gone doesn't count, nor retries of the unnamed subscription, nor a reset that was made before."""
    await world.put(LANE, 5)
    await world.shared.put(f"later.{ENV}.1.acme.0.mid.500000", encode({ORIGIN: "x"}), b"x")

    async def count(at):
        return await count_after_reset(world.own, world.config, await subscriber_of(world), at)

    assert 5 == await count(0)
    assert 0 == await count(world.shared.now() + 10**9)
    await world.shared.purge(LANE, 3)
    assert 3 == await count(0)
    await world.reset().run(StartPoint("first", 0))
    assert 3 == await count(0)


async def test_reset_brings_delayed_messages_that_are_due_since_then(world):
    """K10: by their time, not by whole hours."""
    at = world.shared.now()
    for seconds in (0, 10, 20):
        due = encode({DUE: str(at + seconds * 10**9)})
        await world.shared.put(f"later.{ENV}.1.acme.0.mid.{at // HOUR}", due, b"x")
    for seconds, count in ((0, 3), (1, 2), (11, 1), (21, 0)):
        known = await subscriber_of(world)
        assert count == await count_after_reset(world.own, world.config, known, at + seconds * 10**9)


async def test_other_projects_dont_count():
    """K10: nor after a reset to the first message."""
    world = SubscriptionWorld()
    await world.open()
    await world.creation().run(["shop-*"])
    await world.put(LANE, 3)
    await world.shared.put(f"lanes.{ENV}.1.shop-a.0.mid", b"", b"x")
    assert 1 == await count_after_reset(world.own, world.config, await subscriber_of(world), 0)
    await world.close()


async def settle_all_but_first(world):
    state, (found, position) = await world.shared.state(LANE), await world.own.read_log(LANE)
    heads = [Head(sequence, state.at, 1, b"") for sequence in range(state.first + 1, state.last + 1)]
    record = make_drop(fold([each.body for each in found]), state, heads)
    await world.own.append_log(LANE, settle_record.encode(record), position)
