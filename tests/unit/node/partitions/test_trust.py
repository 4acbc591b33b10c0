"""O, F3: a node whose trust had run out asks its settle logs before it starts a handler: etcd may have gone back to a
time when it owned what others have owned since.
"""

import asyncio

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from tests.support.node.world import LANES, World, turns
from tests.support.store.feeding import logged
from tests.support.until import until

FAR = 1 << 62


class Answers:
    """Of the store to appends: those of some lanes are kept back."""

    def __init__(self, store, *lanes):
        self._append, self._held_up, self._kept = store.append_log, lanes, []
        self.lanes = []  # of all that was appended
        store.append_log = self._append_log

    def _append_log(self, lane, *args, **options):
        self.lanes.append(lane)
        answer = self._append(lane, *args, **options)
        if lane not in self._held_up:
            return answer
        self._kept.append((answer, asyncio.get_running_loop().create_future()))
        return self._kept[-1][1]

    def give(self):
        self._held_up = ()
        for answer, kept in self._kept:
            kept.set_result(answer.result())


@pytest.fixture
async def world():
    async with World() as made:
        yield made


@pytest.fixture
async def node(world):
    """One that has nothing left to settle, and isn't trusted any more. Fenced, it never is again, as by its term."""
    made = await world.node(on_fenced=lambda reason: (made.reasons.append(reason), made.trust(0)))
    made.reasons = []
    await world.put()
    await world.all_gone()
    await until(lambda: not any(lane.log.unsynced_count for lane in made.owned.lanes()))
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


def asks():
    """Whether the logs are being asked."""
    return "regain trust" in [task.get_name() for task in asyncio.all_tasks()]


async def positions(world):
    return [(await logged(world.store, lane))[1] for lane in LANES]


@pytest.mark.parametrize("last", LANES, ids=str)
async def test_nothing_starts_until_each_log_has_taken_a_record(world, node, last):
    answers = Answers(node.store, last)
    looks = counted(node.owned, "lanes")
    await world.put_many(10)
    node.trust(FAR)
    await until(lambda: len(looks) > 2, what="it to look again, with the other answers")
    await turns()
    assert (set(LANES), []) == (set(answers.lanes), world.handled)
    assert node.trusted_until < now_ns()
    answers.give()
    await world.all_gone()
    assert (FAR, 10, []) == (node.trusted_until, len(world.handled), node.reasons)


async def test_nothing_at_all_if_another_owner_has_written_meanwhile(world, node):
    """Who it was has gone, and etcd says that the partitions are this node's."""
    await world.crash(await world.node())
    await world.put_many(10)
    before = await positions(world)
    node.trust(FAR)
    await until(lambda: node.reasons and not asks())
    await turns()
    assert (0, [], before) == (node.trusted_until, world.handled, await positions(world))
    assert "a newer owner has taken over" in node.reasons[0]


async def test_nothing_if_its_term_has_ended_meanwhile(world, node):
    answers = Answers(node.store, LANES[0])
    await world.put_many(10)
    node.trust(FAR)
    await until(lambda: len(answers.lanes) == len(LANES))
    node.trust(0)
    answers.give()
    await until(lambda: not asks())
    await turns()
    assert (0, []) == (node.trusted_until, world.handled)


async def test_what_counts_is_until_when_it_is_trusted_by_then(world, node):
    """Renewals go on meanwhile."""
    answers = Answers(node.store, LANES[0])
    node.trust(FAR)
    await until(lambda: len(answers.lanes) == len(LANES))
    node.trust(FAR + 1)
    answers.give()
    await until(lambda: node.trusted_until == FAR + 1)
    assert len(answers.lanes) == len(LANES)


async def test_a_store_that_is_away_is_waited_for(world, node):
    """L."""
    await world.put_many(10)
    world.server.disconnect(node.store)
    node.trust(FAR)
    await turns()
    assert node.trusted_until < now_ns()
    world.server.reconnect(node.store)
    await world.all_gone()
    assert (FAR, 10, []) == (node.trusted_until, len(world.handled), node.reasons)


async def test_one_that_was_always_trusted_asks_nothing(world):
    """E11: a renewal costs the store nothing."""
    node = await world.node()
    before = await positions(world)
    for until_ns in (now_ns() + 60_000_000_000, FAR):
        node.trust(until_ns)
        assert until_ns == node.trusted_until
    await turns()
    assert before == await positions(world)


async def test_a_log_that_does_not_answer_keeps_the_others_from_nothing(world, node):
    """F5: one stream of many is broken."""
    answers = Answers(node.store, LANES[0])
    await world.put_many(10)
    node.trust(FAR)
    await world.all_gone()
    assert {*LANES} <= {*answers.lanes}
    assert (FAR, 10, []) == (node.trusted_until, len(world.handled), node.reasons)


async def test_what_was_said_before_a_second_lapse_does_not_count(world, node):
    """O: while the last log is waited for, the first one is written to by another owner."""
    answers = Answers(node.store, LaneId("later", 1))
    lapses, before = now_ns() + 50_000_000, await positions(world)
    node.trust(lapses)
    await until(lambda: len(answers.lanes) == len(LANES))
    assert before != await positions(world)
    other = await world.idle_node()
    await other.take_over([0], world.next_epoch())
    await until(lambda: now_ns() > lapses)
    node.trust(FAR)
    answers.give()
    await until(lambda: node.reasons)
    assert 0 == node.trusted_until


async def test_an_answer_to_what_was_appended_before_does_not_count(world, node):
    """The records were taken while the partition was this node's, and another one has owned it since."""
    number = world.partition_of(0)
    answers = Answers(node.store, LaneId("lanes", number), LaneId("later", number))
    node.trust(0)
    node.trust(FAR)
    await world.put()
    await world.put(due=world.store.now())
    await until(lambda: len(world.handled) == 2 and len(answers.lanes) == 2)
    node.trust(now_ns())
    world.handled.clear()
    other = await world.idle_node()
    await other.take_over([number], world.next_epoch())
    await world.crash(other)
    await world.put_many(10)
    node.trust(FAR)
    await turns()
    answers.give()
    await until(lambda: not asks())
    await turns()
    assert (0, []) == (node.trusted_until, world.handled)
