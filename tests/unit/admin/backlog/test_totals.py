"""What waits for a subscription in all projects, from its streams and settle logs (K10)."""

from evenlane.engine.admin.backlog.settle_unowned import make_drop
from evenlane.engine.admin.backlog.totals import BacklogTotals, count_skipped, count_totals
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.ports import Head
from evenlane.engine.core.queue.subscriber import Subscriber
from evenlane.engine.core.records import settle_record
from tests.support.subscription_world import NAME, SubscriptionWorld

LANE, LATER, AGAIN = (LaneId(kind, 1) for kind in ("lanes", "later", "again"))


async def test_reset_to_new_skips_what_waits_and_retries():
    """K10: what is settled above the watermark doesn't count, nor what isn't due."""
    world = SubscriptionWorld()
    await world.open()
    await world.creation().run()
    await world.put(LANE, 10)
    await world.put(LATER, 2)
    await world.own.put(f"again.online_{NAME}.1.acme.0.mid.500000", b"", b"x")
    await settle_all_but_first(world)
    known = Subscriber(is_named=True, chosen=(await world.known())[NAME].filter)
    assert 2 == await count_skipped(world.own, world.config, known)
    assert BacklogTotals(1, 3) == await count_totals(world.own, world.config, known)
    await world.close()


async def settle_all_but_first(world):
    state, (found, position) = await world.shared.state(LANE), await world.own.read_log(LANE)
    heads = [Head(sequence, state.at, 1, b"") for sequence in range(state.first + 1, state.last + 1)]
    record = make_drop(fold([each.body for each in found]), state, heads)
    await world.own.append_log(LANE, settle_record.encode(record), position)
