"""Election of the topic controller: one of many leads, and another one takes over."""

import json

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.accepted_view import AcceptedView
from evenlane.engine.control.topics.accepted_writer import AcceptedWriter
from evenlane.engine.control.topics.reconcile import TopicReconciler
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import CreatedAt, Event, KeyValue
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.control.leader.topic_keys import ROOT, accepted, in_effect, put_spec


async def test_leader_key_names_holder_and_start(coordination, controller):
    """P4."""
    await controller.start()
    await controller.leading.wait()
    leader = await coordination.get(ROOT + "leader")
    assert {"id", "since"} == set(json.loads(leader.value))
    assert json.loads(leader.value)["id"] == "one"
    assert leader.lease


async def test_standby_leads_after_leader_closes(coordination, controller):
    """P4."""
    other = TopicController(coordination.peer(), "online", ClusterConfig(), "two")
    await controller.start()
    await controller.leading.wait()
    await other.start()
    await put_spec(coordination, "a", b'{"qps": 100}')
    await in_effect(coordination, "a", 100)
    assert not other.leading.is_set()
    await controller.close()
    await other.leading.wait()
    await put_spec(coordination, "a", b'{"qps": 50}')
    await in_effect(coordination, "a", 50)
    await other.close()
    assert await coordination.get(ROOT + "leader") is None


async def test_exactly_one_of_many_leads(coordination):
    """Fault 18."""
    many = [TopicController(coordination.peer(), "online", ClusterConfig(), f"n{n}") for n in range(20)]
    for each in many:
        await each.start()
    while many:
        await until(lambda: any(each.leading.is_set() for each in many))
        leaders = [each for each in many if each.leading.is_set()]
        assert len(leaders) == 1
        await leaders[0].close()
        many.remove(leaders[0])


async def test_takeover_follows_the_end_of_a_dead_leaders_lease(coordination, controller):
    """P4, fault 6."""
    others = coordination.peer()
    dead = TopicController(others, "online", ClusterConfig(), "dead")
    await dead.start()
    await dead.leading.wait()
    await controller.start()
    others.cut()
    coordination.advance(10)
    await controller.leading.wait()
    await put_spec(coordination, "a", b'{"qps": 100}')
    await in_effect(coordination, "a", 100)
    await dead.close()


async def test_write_of_a_previous_leader_is_rejected(coordination, controller):
    """O, fault 7: two processes believe that they lead, and etcd rejects the writes of one."""
    await controller.start()
    await controller.leading.wait()
    leader = await coordination.get(ROOT + "leader")
    await coordination.delete(ROOT + "leader")
    await coordination.put(ROOT + "leader", leader.value)
    changes = TopicReconciler("online", ClusterConfig(), {}).changes(
        [Event("put", KeyValue(ROOT + "topics/a", b'{"qps": 5}', 1, 1, 0))]
    )
    fence = CreatedAt(ROOT + "leader", leader.create_revision)
    writer = AcceptedWriter(coordination, "online", fence, AcceptedView("online", ()))
    assert not await writer.publish(changes)
    assert await accepted(coordination, "a") is None
    await until(lambda: not controller.leading.is_set())


async def test_deleted_leader_key_causes_reelection(coordination, controller):
    await controller.start()
    await controller.leading.wait()
    first = await coordination.get(ROOT + "leader")
    await coordination.delete(ROOT + "leader")

    async def is_recreated():
        now = await coordination.get(ROOT + "leader")
        return now is not None and now.create_revision != first.create_revision

    await until(is_recreated)
    await put_spec(coordination, "a", b'{"qps": 100}')
    await in_effect(coordination, "a", 100)


async def test_leader_continues_after_an_etcd_outage(coordination, client, controller):
    await controller.start()
    await controller.leading.wait()
    client.cut()
    await put_spec(coordination, "a", b'{"qps": 100}')
    client.heal()
    await in_effect(coordination, "a", 100)


@in_virtual_time
async def test_leader_without_etcd_stops_at_the_end_of_its_lease():
    """Fault 10: it knows by itself when the lease may end."""
    coordination = MemoryCoordination()
    client = coordination.peer()
    short = TopicController(client, "online", ClusterConfig(), "short", lease_ttl_s=1)
    await short.start()
    await short.leading.wait()
    client.cut()
    await until(lambda: not short.leading.is_set())
    assert await coordination.get(ROOT + "leader") is not None
    await short.close()


async def test_start_and_close_can_be_repeated(controller):
    await controller.close()
    await controller.start()
    await controller.start()
    await controller.close()
    await controller.close()
    assert not controller.leading.is_set()
