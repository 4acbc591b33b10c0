"""The number of partitions that nodes own together, once their plans are carried out."""

import asyncio

from evenlane.engine.base import names
from evenlane.engine.cli.run.lifeline import NodeReady
from evenlane.engine.cli.run.readiness import wait_until_ready
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import DoneRecord, OwnerRecord, PlanRecord, encode


async def put(coordination, key, record):
    await coordination.put(names.key("online", *key.split("/")), encode(record))


async def test_partitions_are_counted_once_all_plans_are_carried_out():
    coordination = MemoryCoordination()
    await put(coordination, "plan/n-0", PlanRecord(generation=2, partitions=[0, 1]))
    await put(coordination, "plan/n-1", PlanRecord(generation=3, partitions=[2]))
    await put(coordination, "done/n-0", DoneRecord(generation=2))
    for partition, owner in enumerate(["n-0", "n-0", "n-0", "other"]):
        await put(coordination, f"owners/{partition}", OwnerRecord(id=owner, epoch=9))
    await coordination.put(names.key("online", "owners", "4"), b"unreadable")
    counting = asyncio.create_task(wait_until_ready(coordination, "online", ["n-0", "n-1"], 3600))
    assert not (await asyncio.wait({counting}, timeout=0.3))[0]  # n-1 hasn't taken its partition yet
    await put(coordination, "owners/2", OwnerRecord(id="n-1", epoch=10))
    await put(coordination, "done/n-1", DoneRecord(generation=3))
    assert NodeReady(3, 3, "online") == await asyncio.wait_for(counting, 10)


async def test_partitions_are_counted_after_the_timeout():
    coordination = MemoryCoordination()
    await put(coordination, "owners/1", OwnerRecord(id="n-0", epoch=9))
    found = await asyncio.wait_for(wait_until_ready(coordination, "online", ["n-0", "n-1"], 0.2), 10)
    assert NodeReady(1, 0, "online") == found
