"""What is chosen beyond the slots while handlers take no time, and that it is given back when they do (X11, W, X9)."""

import asyncio

import pytest

from engine.clock import now_ns
from engine.node.lead import Lead
from tests.engine.node.gate_records import Records
from tests.engine.node.keyed import Keyed
from tests.engine.node.world import topic
from tests.wait import until

MS = 1_000_000
FAST = {"qps": 100_000, "burst": 10_000, "groups": 1, "spread": 1, "ack_wait": 60}
_MOST = 512


def lead_of(*steps, slots=64):
    """Steps: (ms that pass, handlers that run, messages chosen then)."""
    lead, now, seen = Lead(slots), 0, []
    for passed, running, chosen in steps:
        now += int(passed * MS)
        lead.choose(now, running, 0)
        lead.chosen(chosen)
        seen.append(lead.more)
    return seen


def test_no_lead_until_it_is_known_how_many_start():
    """X11: a node that has just begun, or was idle, names no more than it has slots for."""
    assert [0] == lead_of((1_000, 0, 64))
    assert 0 == lead_of(*[(5, 0, 500)] * 40, (60_000, 0, 64))[-1]


def test_it_grows_with_the_rate_and_has_a_bound():
    """X11: as many as start in some milliseconds; so a slow handler has none, and a fast one a few hundred."""
    slow, some, fast = (lead_of(*[(5, 0, chosen)] * 40)[-1] for chosen in (0, 100, 5_000))
    assert 0 == slow
    assert 64 <= some <= 160
    assert _MOST == fast


def test_what_waits_for_a_record_has_not_started():
    """X11: the later a record, the more would be named by the next one, and charged for a death."""
    lead = Lead(64)
    for step in range(40):
        lead.choose(step * 5 * MS, 0, 40 * step)
        lead.chosen(40)
    assert 0 == lead.more


def test_there_is_none_while_handlers_take_time():
    """X9: slots are what tenants share then."""
    seen = lead_of(*[(5, 0, 500)] * 40, *[(5, 1, 500)] * 3, (5, 0, 500))
    assert [0] * 3 == seen[-4:-1]
    assert seen[-1] > 0


@pytest.mark.parametrize(("running", "waited", "lost"), [(0, 1, False), (16, 1, False), (17, 1, True), (0, 20, True)])
def test_it_is_lost(running, waited, lost):
    """E5, X9: what was chosen ahead is chosen anew where handlers wait, or the loop is blocked."""
    assert lost == Lead(64).lost(running, waited * MS)


@pytest.fixture
async def world():
    async with Keyed(acme=topic(**FAST), shop=topic(**FAST)) as made:
        yield made


async def test_a_record_names_more_than_the_slots(world):
    """X11: or it would cost more than the messages in it; and no more handlers run at once than there are slots."""
    most = 0

    async def act(message):
        nonlocal most
        most = max(most, len(node.workers.running))

    world.act = act
    await world.put_keys([None] * 3_000)
    node = await world.node(world.handle, concurrency=8)
    records = Records(node)
    await world.all_over()
    assert records.chosen > 8
    assert records.chosen <= 8 + _MOST
    assert most <= 8
    assert 3_000 == len(world.ids)


@pytest.mark.parametrize(("slots", "late_s"), [(4, 0), (8, 0), (64, 0), (64, 0.003)])
async def test_it_is_given_back_as_soon_as_handlers_take_time(world, slots, late_s):
    """X9, E5: what was chosen ahead takes no slot from those who come now; each message begins once, in put order."""
    free = asyncio.Event()
    slow, early, fast = set(), set(), 100 + 8 * slots

    async def act(message):
        if message.project == "acme" and len(world.ids) > fast and early <= set(world.ids):
            slow.add(message.id)
            await free.wait()

    world.act = act
    early.update(await world.put_keys([None] * 20, project="shop"))  # a slot is kept for it for a few seconds
    put = await world.put_keys([None] * (2 * fast))
    node = await world.node(world.handle, concurrency=slots)
    records = Records(node)
    records.delays.extend([late_s] * 10_000)
    await until(lambda: slow)
    late = await world.put_keys([None] * 20, project="shop")
    await until(lambda: set(late) <= set(world.ids), what="the other tenant to be handled beside the slow one")
    assert len(slow) < slots, "a slot stays free for others"
    assert len(node.in_flight) <= slots
    free.set()
    await world.all_over(20)
    assert {1} == {begun.attempt for every in world.begun.values() for begun in every}
    assert put == [begun.id for begun in world.begun["acme", 0, "mid", None]]
    assert 2 * fast + 40 == len(world.ids)


async def test_nor_does_a_handler_that_blocks_hold_up_what_comes_first(world):
    """E5: one that never awaits is looked at by time; a message of high priority waits for a few of them."""
    blocked, after = 0, 0

    async def act(message):
        nonlocal blocked, after
        if len(world.ids) > 2_000 and message.priority == "mid":
            blocked += 1
            end = now_ns() + 3 * MS
            while now_ns() < end:
                pass
            after += bool(urgent)

    urgent = []
    world.act = act
    await world.put_keys([None] * 2_300)
    await world.node(world.handle, concurrency=8)
    await until(lambda: blocked > 1)
    urgent.append(await world.put_key(None, priority="high"))
    await until(lambda: urgent[0] in world.ids)
    assert after <= 20
    await world.all_over(20)
