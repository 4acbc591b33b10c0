"""O, F3: a node whose trust had lapsed writes to its settle logs before it starts a handler: etcd may have been rolled
back to a time before other nodes owned its partitions.
"""

import asyncio

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from tests.support.node.world import LANES, World, is_durable, turns
from tests.support.store.feeding import logged
from tests.support.until import until

FAR = 1 << 62


class HeldAppends:
    """Holds back the store's answers to appends to some lanes, until `release`. `lanes` has the lane of each append."""

    def __init__(self, store, *lanes):
        self._append, self._held_lanes, self._held = store.append_log, lanes, []
        self.lanes = []
        store.append_log = self._append_log

    def _append_log(self, lane, *args, **options):
        self.lanes.append(lane)
        answer = self._append(lane, *args, **options)
        if lane not in self._held_lanes:
            return answer
        self._held.append((answer, asyncio.get_running_loop().create_future()))
        return self._held[-1][1]

    def release(self):
        self._held_lanes = ()
        for answer, held in self._held:
            held.set_result(answer.result())


@pytest.fixture
async def world():
    async with World() as made:
        yield made


@pytest.fixture
async def node(world):
    """A node that has nothing left to settle, and whose trust has lapsed. Once fenced, it is never trusted again."""
    made = await world.node(on_fenced=lambda reason: (made.reasons.append(reason), made.trust(0)))
    made.reasons = []
    await world.put()
    await world.all_gone()
    await until(lambda: is_durable(made))
    made.trust(now_ns())
    world.handled.clear()
    return made


def counted(of, name):
    """A list that grows with each call."""
    real, calls = getattr(of, name), []

    def call():
        calls.append(None)
        return real()

    setattr(of, name, call)
    return calls


def is_regaining():
    """Whether the node is writing to its logs to regain trust."""
    return "regain trust" in [task.get_name() for task in asyncio.all_tasks()]


async def positions(world):
    return [(await logged(world.store, lane))[1] for lane in LANES]


@pytest.mark.parametrize("last", LANES, ids=str)
async def test_no_message_starts_until_each_log_has_taken_a_record(world, node, last):
    appends = HeldAppends(node.store, last)
    looks = counted(node.owned, "lanes")
    await world.put_many(10)
    node.trust(FAR)
    await until(lambda: len(looks) > 2, what="a second look at the lanes")
    await turns()
    assert (set(LANES), []) == (set(appends.lanes), world.handled)
    assert node.trusted_until < now_ns()
    appends.release()
    await world.all_gone()
    assert (FAR, 10, []) == (node.trusted_until, len(world.handled), node.reasons)


async def test_node_is_fenced_if_another_owner_has_written(world, node):
    """O: the other owner is gone, and by etcd the partitions are this node's."""
    await world.crash(await world.node())
    await world.put_many(10)
    before = await positions(world)
    node.trust(FAR)
    await until(lambda: node.reasons and not is_regaining())
    await turns()
    assert (0, [], before) == (node.trusted_until, world.handled, await positions(world))
    assert "a newer owner has taken over" in node.reasons[0]


async def test_node_stays_untrusted_if_its_session_ends_meanwhile(world, node):
    appends = HeldAppends(node.store, LANES[0])
    await world.put_many(10)
    node.trust(FAR)
    await until(lambda: len(appends.lanes) == len(LANES))
    node.trust(0)
    appends.release()
    await until(lambda: not is_regaining())
    await turns()
    assert (0, []) == (node.trusted_until, world.handled)


async def test_renewal_while_trust_is_regained_counts(world, node):
    appends = HeldAppends(node.store, LANES[0])
    node.trust(FAR)
    await until(lambda: len(appends.lanes) == len(LANES))
    node.trust(FAR + 1)
    appends.release()
    await until(lambda: node.trusted_until == FAR + 1)
    assert len(appends.lanes) == len(LANES)


async def test_unreachable_store_delays_trust(world, node):
    """L."""
    await world.put_many(10)
    world.server.disconnect(node.store)
    node.trust(FAR)
    await turns()
    assert node.trusted_until < now_ns()
    world.server.reconnect(node.store)
    await world.all_gone()
    assert (FAR, 10, []) == (node.trusted_until, len(world.handled), node.reasons)


async def test_renewal_without_a_lapse_writes_no_record(world):
    """E11."""
    node = await world.node()
    before = await positions(world)
    for until_ns in (now_ns() + 60_000_000_000, FAR):
        node.trust(until_ns)
        assert until_ns == node.trusted_until
    await turns()
    assert before == await positions(world)


async def test_log_that_does_not_answer_does_not_prevent_trust(world, node):
    """F5: one stream of several is broken."""
    appends = HeldAppends(node.store, LANES[0])
    await world.put_many(10)
    node.trust(FAR)
    await world.all_gone()
    assert {*LANES} <= {*appends.lanes}
    assert (FAR, 10, []) == (node.trusted_until, len(world.handled), node.reasons)


async def test_answers_before_a_second_lapse_do_not_count(world, node):
    """O: another owner writes to the first log while the last one hasn't answered."""
    appends = HeldAppends(node.store, LaneId("later", 1))
    lapses, before = now_ns() + 50_000_000, await positions(world)
    node.trust(lapses)
    await until(lambda: len(appends.lanes) == len(LANES))
    assert before != await positions(world)
    other = await world.idle_node()
    await other.take_over([0], world.next_epoch())
    await until(lambda: now_ns() > lapses)
    node.trust(FAR)
    appends.release()
    await until(lambda: node.reasons)
    assert 0 == node.trusted_until


async def test_answers_to_earlier_appends_do_not_count(world, node):
    """O: these records were stored while the node owned the partition, and another node has owned it since."""
    number = world.partition_of(0)
    appends = HeldAppends(node.store, LaneId("lanes", number), LaneId("later", number))
    node.trust(0)
    node.trust(FAR)
    await world.put()
    await world.put(due=world.store.now())
    await until(lambda: len(world.handled) == 2 and len(appends.lanes) == 2)
    node.trust(now_ns())
    world.handled.clear()
    other = await world.idle_node()
    await other.take_over([number], world.next_epoch())
    await world.crash(other)
    await world.put_many(10)
    node.trust(FAR)
    await turns()
    appends.release()
    await until(lambda: not is_regaining())
    await turns()
    assert (0, []) == (node.trusted_until, world.handled)
