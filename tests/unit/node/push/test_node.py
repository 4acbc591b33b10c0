"""E17 end to end: topics with push on a node. Endpoints are real, and the store is in memory."""

import pytest
from aiohttp import web

from evenlane.engine.core.wire import headers as h
from evenlane.engine.push import handle
from tests.support.node.world import World, topic
from tests.support.until import until


def bodies(receiver):
    return sorted(seen.body for seen in receiver.seen)


async def test_node_pushes_topics_with_push_and_handles_others(receiver, pusher):
    async with World(acme=topic(push={"url": receiver.url}), other=topic()) as world:
        await world.put_many(20)
        await world.put(b"for the handler", project="other")
        await world.node(push=pusher)
        await world.all_gone()
        assert (sorted(b"%d" % n for n in range(20)), [b"for the handler"]) == (
            bodies(receiver), [message.body for message in world.handled],
        )  # fmt: skip


async def test_failing_endpoint_leads_to_a_dead_letter_with_its_answer(receiver, pusher):
    receiver.status, receiver.body = 500, b"no such\norder"
    async with World(acme=topic(push={"url": receiver.url}, max_attempts=3)) as world:
        await world.put(b"x", id="order-1")
        await world.node(push=pusher)
        [dead] = await until(world.dead)
        assert f"PushFailed: HTTP 500 from {receiver.url}: no such order" == h.value(dead.headers, h.ERROR)
        assert "failed 3 times" == h.value(dead.headers, h.REASON)
        assert ["1", "2", "3"] == [seen.headers["evenlane-attempt"] for seen in receiver.seen]
        assert {"acme:order-1"} == {seen.headers["webhook-id"] for seen in receiver.seen}


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_pauses_the_topic_and_costs_no_attempt(receiver, pusher, status):
    """The other topic runs meanwhile. After the pause, all messages are pushed in their first attempt."""
    pausing = True

    async def pause_first(_request):
        return web.Response(status=status, headers={"Retry-After": "1"}) if pausing else web.Response()

    receiver.behaviour = pause_first
    async with World(acme=topic(push={"url": receiver.url}, max_attempts=1), other=topic()) as world:
        await world.put_many(10)
        await world.node(push=pusher)
        await until(lambda: receiver.seen)
        await world.put(b"meanwhile", project="other")
        await until(lambda: world.handled)
        asked = len(receiver.seen)
        pausing = False
        await world.all_gone()
        assert 10 == len(receiver.seen) - asked
        assert {"1"} == {seen.headers["evenlane-attempt"] for seen in receiver.seen}
        assert [] == world.dead()


async def test_open_breaker_costs_no_attempt(receiver, pusher):
    """Five messages fail. The others wait, and are pushed when the endpoint is back."""
    receiver.status = 500
    push = {"url": receiver.url, "concurrency": 1}
    async with World(acme=topic(push=push, max_attempts=2, backoff={"base": 0.01, "jitter": 0})) as world:
        await world.put_many(30)
        node = await world.node(push=pusher)
        await until(lambda: node.pauses.reason("acme"))
        assert 5 == len(receiver.seen)
        receiver.status = 200
        await world.all_gone()
        taken = {seen.body for seen in receiver.seen[5:]}
        dead = {each.body for each in world.dead()}
        assert {b"%d" % n for n in range(30)} == taken | dead
        assert len(dead) <= 5


async def test_push_concurrency_bounds_requests_at_once(receiver, pusher):
    under_way = most = 0

    async def counted(_request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await until(lambda: under_way == 2 or len(receiver.seen) == 20)
        under_way -= 1
        return web.Response()

    receiver.behaviour = counted
    async with World(acme=topic(push={"url": receiver.url, "concurrency": 2})) as world:
        await world.put_many(20)
        await world.node(push=pusher)
        await world.all_gone()
        assert 2 == most


async def test_push_may_take_longer_than_ack_wait(receiver, pusher):
    """P11: its own timeout counts."""
    release = []

    async def slow(_request):
        await until(lambda: release)
        return web.Response()

    receiver.behaviour = slow
    async with World(acme=topic(push={"url": receiver.url}, ack_wait=0.05), other=topic(ack_wait=0.05)) as world:
        await world.put()
        node = await world.node(hangs, push=pusher)
        await until(lambda: receiver.seen)
        await world.put(project="other")  # when this one has timed out, the sweep has seen both
        await until(lambda: node.counters.retried)
        release.append(True)
        await until(lambda: node.counters.handled)
        assert 1 == len(receiver.seen)


async def hangs(_message):
    await until(lambda: False, 60)


async def test_node_that_only_pushes_keeps_messages_of_other_topics(receiver, pusher):
    async with World(acme=topic(push={"url": receiver.url}), other=topic(max_attempts=1)) as world:
        await world.put(project="other")
        node = await world.node(handle, push=pusher)
        await world.put()
        await until(lambda: node.counters.handled)
        await until(lambda: world.waiting() == 1)
        assert [] == world.dead()
