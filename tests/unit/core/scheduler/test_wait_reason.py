"""The reasons of queues that may start, in cases that the model of `test_fair_machine` leaves open (X8)."""

from evenlane.engine.core.scheduler.interface import start_next
from tests.support.scheduler.parts import MS, SECOND
from tests.support.scheduler.world import SchedulerWorld, name_of


def next_of(world):
    """Start the message that is next a second later. Returns the name of its queue, and the reason that it had."""
    world.now += SECOND
    grant = world.scheduler.next(world.now)
    reason = world.scheduler.wait_reason(grant.queue, world.now)
    grant.commit(world.now)
    return name_of(grant.queue), reason


def test_queue_whose_turn_it_is_has_no_reason():
    """X8: slots are free. The other tenant waits for that turn only."""
    world = SchedulerWorld(slots=2)
    for name in ("acme", "bolt"):
        world.topic(name)
        world.put(f"{name}/0/mid")
    assert (None, "fairness") == (world.why("acme/0/mid"), world.why("bolt/0/mid"))
    assert "acme" == start_next(world.scheduler, world.now).project
    assert None is world.why("bolt/0/mid")


def test_lower_priority_whose_turn_ageing_brings_has_no_reason():
    """X8: before its turn it waits for the higher priority."""
    world = SchedulerWorld()
    world.topic("acme", ageing=0.5)
    world.put("acme/0/high", 2)
    world.put("acme/0/low", 2)
    assert "higher_priority" == world.why("acme/0/low")
    assert ("acme/0/high", None) == next_of(world)
    assert ("acme/0/low", None) == next_of(world)
    assert "higher_priority" == world.why("acme/0/low")


def test_tenant_within_its_reserve_has_no_reason():
    """X8: it may have the slot that headroom keeps from others."""
    world = SchedulerWorld(slots=4)
    for name in ("acme", "bolt"):
        world.topic(name)
        world.handler(name, None)
        world.put(f"{name}/0/mid")
    world.run(100 * MS)
    world.end("bolt")
    world.put("acme/0/mid", 10)
    world.run(100 * MS)
    assert "headroom" == world.why("acme/0/mid")
    world.topic("acme", reserve=1.0)
    assert ("acme/0/mid", None) == next_of(world)
