"""Tests of fault 17: handlers that take longer than `ack_wait`, with and without signs of life."""

import pytest

from tests.ledger.puts import one, some
from tests.support.until import until

pytestmark = pytest.mark.real


def chain(world, own: str) -> list[tuple[str, int]]:
    return [(entry.what, entry.attempt) for entry in world.entries() if entry.id == own]


@pytest.mark.parametrize("handler", ["obey", "obey_in_thread"])
async def test_only_a_silent_handler_loses_its_message(world, handler):
    """P11, fault 17: after two seconds of silence, the message has another attempt, and no other is repeated. A
    handler that gives signs of life keeps its message.
    """
    node = await world.node(handler, concurrency=8)
    await world.topics("acme", "bolt", ack_wait=2)
    producer = await world.producer()
    slow, long = one("acme", "slow", order="first sleep 7"), one("acme", "long", order="alive 4")
    await world.put(producer, [slow, long, *some("bolt", "m", 200)])
    await world.handled()
    if handler == "obey":
        expected = [("begin", 1), ("cancelled", 1), ("begin", 2), ("ok", 2)]
    else:  # a thread can't be cancelled: it ends after the second attempt, and its result is ignored
        expected = [("begin", 1), ("begin", 2), ("ok", 2), ("ok", 1)]
    await until(lambda: len(chain(world, "acme-slow")) == 4, what="both attempts to end")
    assert expected == chain(world, "acme-slow")
    assert 0 == await node.stop()
    await node.start()
    await world.put(producer, [one("acme", "next")])
    await world.handled()
    assert expected == chain(world, "acme-slow")
    assert [("begin", 1), ("ok", 1)] == chain(world, "acme-long")
    assert 200 == sum(own.startswith("bolt") for own in world.ids())
