"""Handoff records of partition 3 in etcd."""

from evenlane.engine.cluster.ownership.handoff import HandoffId
from evenlane.ring.membership.records import HeldLane, HeldRecord, decode
from tests.support.membership_cluster import key

HELD = HandoffId(3, 17)
LEASE = 1  # the first that is granted
KEY = key("held", 3, 17)


def record(running=(), done=()):
    return HeldRecord(
        id="a",
        epoch=17,
        lease=LEASE,
        lanes={"lanes": HeldLane(created="s", high=9, high_at=99, running=list(running), done=list(done))},
    )


async def held_record(client):
    item = await client.get(KEY)
    return None if item is None else (decode(HeldRecord, KEY, item.value), item.lease)
