"""Positions of subscriptions: which are behind, and which hold storage (K10)."""

import pytest
from msgspec.structs import replace

from evenlane.engine.admin.overview.subscriptions import compare, read_subscriptions
from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.subscriptions.registry import RegistryView, Subscription
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.wire.varint_runs import pack_runs
from tests.support.subscription_world import CLUSTER, ENV, PARTITIONS, SubscriptionWorld

LANE = LaneId("lanes", 0)
VIEW = RegistryView(7, {"audit": Subscription(state="active")})


@pytest.mark.parametrize(
    ("positions", "found"),
    [
        ((10, 10), [(0, 0), (0, 0)]),
        ((10, 4), [(0, 0), (6, 6)]),
        ((4, 10), [(6, 6), (0, 0)]),
        ((7, 4, 5), [(3, 0), (6, 1), (5, 0)]),
        ((4, 4), [(6, 0), (6, 0)]),
    ],
)
def test_subscription_holds_what_all_others_have_settled(positions, found):
    """K10: two that are equally far behind hold nothing alone."""
    assert found == compare(positions, 10, stored=10)


def test_what_is_gone_is_held_by_nobody():
    """K10: above its position, nearly all was deleted singly."""
    assert [(2, 2), (0, 0)] == compare((0, 10), 10, stored=2)


@pytest.fixture
async def world():
    made = SubscriptionWorld()
    await made.open()
    yield made
    await made.close()


async def test_new_subscription_starts_at_the_end(world):
    """K10: it isn't behind with what was stored before. The unnamed one has settled nothing, and holds that alone."""
    await world.put(LANE, 3)
    await world.creation().run()
    await world.etcd.put(names.key(CLUSTER, "nodes", "b"), b"{}")
    await world.put(LANE, 2)
    unnamed, audit = await read_subscriptions(world.etcd, world.shared, ENV, PARTITIONS, VIEW)
    assert {"name": None, "state": "active", "nodes": 0, "behind": 5, "holds": 3} == unnamed
    assert {"name": "audit", "state": "active", "nodes": 1, "behind": 2, "holds": 0} == audit


async def test_reset_subscription_is_behind_with_all_that_is_stored(world):
    """K10: until its settle log follows the reset, what it says counts for nothing."""
    await world.put(LANE, 3)
    await world.creation().run()
    view = RegistryView(7, {"audit": Subscription(state="active", reset=1)})
    _, audit = await read_subscriptions(world.etcd, world.shared, ENV, PARTITIONS, view)
    assert 3 == audit["behind"]


async def test_last_messages_of_an_idle_lane_are_settled(world):
    """K10: the watermark of a record is that of before its own messages, and no other record follows."""
    await world.creation().run()
    await world.put(LANE, 5)
    [*_, last] = await world.log(LANE)
    mine = replace(last, number=last.number + 1, high=5, runs=pack_runs([(1, 4)], 0), watermark=0)
    await world.append(LANE, mine)
    unnamed, audit = await read_subscriptions(world.etcd, world.shared, ENV, PARTITIONS, VIEW)
    assert [(1, 0), (5, 4)] == [(row["behind"], row["holds"]) for row in (unnamed, audit)]


async def test_without_named_ones_nothing_is_asked(world):
    """K10: not even etcd."""
    assert [] == await read_subscriptions(None, None, ENV, PARTITIONS, RegistryView())


async def test_positions_are_unknown_while_nats_is_silent(world):
    """K10: states and nodes are shown."""

    class Silent:
        async def state(self, _lane):
            raise Lost("no answer")

    rows = await read_subscriptions(world.etcd, Silent(), ENV, PARTITIONS, VIEW)
    assert [("active", 0, None, None)] * 2 == [
        (row["state"], row["nodes"], row["behind"], row["holds"]) for row in rows
    ]
