"""What is gathered while the leader is at work on what came before (X4)."""

import asyncio

import pytest

from evenlane.engine.control.leader.work_queue import WorkQueue
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Listing
from tests.support.until import until

TOPICS, ACCEPTED = "/evenlane/online/topics/", "/evenlane/online/accepted/"


@pytest.fixture
def coordination():
    return MemoryCoordination()


async def put_spec(coordination, project, raw):
    await coordination.put(TOPICS + project, raw)


@pytest.fixture
async def inbox(coordination):
    made = WorkQueue(coordination.watch(TOPICS), coordination.watch(ACCEPTED))
    await until(lambda: made._specs.updates and made._accepted.updates)
    made.take()
    yield made
    await made.close()


async def test_of_each_key_the_last_is_kept(coordination, inbox):
    for qps in range(100):
        await put_spec(coordination, "ab"[qps % 2], b"%d" % qps)
    await until(lambda: len(inbox._specs.updates) == 2)
    assert await inbox.wait()
    reported, accepted, asked = inbox.take()
    assert ([b"98", b"99"], [], []) == ([each.item.value for each in reported], accepted, asked)
    assert ([], [], []) == inbox.take()


async def test_what_stands_under_accepted_is_told_apart(coordination, inbox):
    await coordination.put(ACCEPTED + "a", b"rubbish")
    assert await inbox.wait()
    reported, accepted, _ = inbox.take()
    assert ([], [b"rubbish"]) == (reported, [each.item.value for each in accepted])


async def test_a_listing_replaces_what_came_before_it(coordination, inbox):
    """Fault 11: an older event must not be taken for a newer one."""
    for raw in (b"1", b"2"):
        coordination.disconnect_watches()
        await until(lambda: any(isinstance(each, Listing) for each in inbox._specs.updates.values()))
        await put_spec(coordination, "a", raw)
        await until(lambda: len(inbox._specs.updates) == 2)
    coordination.disconnect_watches()
    await until(lambda: len(inbox._specs.updates) == 1)
    [reported] = inbox.take().specs
    assert [b"2"] == [item.value for item in reported.items]


async def test_it_ends_with_its_watch_and_leaves_no_question_open(coordination):
    inbox = WorkQueue(coordination.watch(TOPICS), coordination.watch(ACCEPTED))
    question = asyncio.ensure_future(inbox.ask("a", {0}, None))
    await coordination.close()
    await until(lambda: inbox._specs.ended)
    assert not await inbox.wait()
    await inbox.close()
    assert not await question
