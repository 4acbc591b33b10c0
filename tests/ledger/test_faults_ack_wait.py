"""Fault 17: handlers that take longer than ack_wait, with and without signs of life."""

import pytest

from tests.ledger.puts import one, some
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]


@pytest.fixture(params=["obey", "obey_in_thread"])
async def at_work(request, world):
    """A world whose node gives up handlers after half a second of silence, and its producer."""
    node = await world.node(request.param, concurrency=8)
    await world.topics("acme", "bolt", ack_wait=0.5)
    return world, node, await world.producer(), request.param


def chain(world, own: str) -> list[tuple[str, int]]:
    return [(entry.what, entry.attempt) for entry in world.entries() if entry.id == own]


async def test_one_that_is_silent_is_given_out_again(at_work):
    """P11: and nothing else is handled twice."""
    world, node, producer, handler = at_work
    await world.put(producer, [one("acme", "slow", order="first sleep 2"), *some("bolt", "m", 200)])
    await world.handled()
    if handler == "obey":
        wanted = [("begin", 1), ("cancelled", 1), ("begin", 2), ("ok", 2)]
    else:  # a thread can't be cancelled: it ends after the second attempt, and its result counts for nothing
        wanted = [("begin", 1), ("begin", 2), ("ok", 2), ("ok", 1)]
    await until(lambda: len(chain(world, "acme-slow")) == 4, 5, "both attempts to end")
    assert wanted == chain(world, "acme-slow")
    assert 0 == await node.stop()
    await node.start()
    await world.put(producer, [one("acme", "next")])
    await world.handled()
    assert wanted == chain(world, "acme-slow")
    assert 200 == sum(own.startswith("bolt") for own in world.ids())


async def test_one_that_gives_signs_of_life_is_left_alone(at_work):
    """P11."""
    world, node, producer, _ = at_work
    await world.put(producer, [one("acme", "long", order="alive 2")])
    await world.handled()
    assert 0 == await node.stop()
    assert [("begin", 1), ("ok", 1)] == chain(world, "acme-long")
