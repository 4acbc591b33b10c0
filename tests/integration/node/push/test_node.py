"""L, E17: a node on a real nats-server pushes to an endpoint that fails at times."""

import pytest
from aiohttp import web

from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.proof.broker.environment import environment
from evenlane.engine.proof.broker.puts import putting
from evenlane.engine.push import handle
from evenlane.engine.runtime.embedded.nats import NatsServer
from tests.support.node.world import CLUSTER_CONFIG, topic
from tests.support.until import until


@pytest.mark.real
async def test_on_a_real_server_nothing_is_lost_through_a_bad_endpoint(receiver, pusher, tmp_path):
    """L: 300 messages, every fifth of which fails the first time; with a real nats-server."""
    failed = set()

    async def at_times(request):
        identity = request.headers["webhook-id"]
        if int(identity.rpartition(":")[2]) % 5 == 0 and identity not in failed:
            failed.add(identity)
            return web.Response(status=500)
        return web.Response(status=202)

    receiver.behaviour = at_times
    topics = {"acme": topic(push={"url": receiver.url}, qps=100_000)}
    server = NatsServer(tmp_path)
    await server.start()
    try:
        async with (
            environment(server.url, "push", CLUSTER_CONFIG, topics.get) as made,
            putting(server.url, "push", CLUSTER_CONFIG, {"acme": 2}) as puts,
            made.serving(
                Handler.of(handle).call, FairScheduler(16), slots=16, limits=MemoryBudget(), on_stop=print, push=pusher
            ) as node,
        ):
            for number in range(300):
                await puts.put("acme", number % 10, 1, number, b"%d" % number)
            await until(lambda: node.counters.handled == 300, 30)
        assert 360 == len(receiver.seen)
        assert {b"%d" % n for n in range(300)} == {seen.body for seen in receiver.seen}
        assert {f"acme:{n}" for n in range(300)} == {seen.headers["webhook-id"] for seen in receiver.seen}
    finally:
        await server.stop()
