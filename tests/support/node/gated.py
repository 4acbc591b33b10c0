"""A world whose handlers wait, and the answers of a node about its queues meanwhile."""

import asyncio
from contextlib import asynccontextmanager

from evenlane.engine.admin.why.responder import QueueInspector
from evenlane.engine.core.records.backlog_answer import NodeAnswer
from evenlane.engine.store.memory.server import MemoryServer
from tests.support.node.world import SECOND, World

NOW = 1_800_000_000 * SECOND


class Clock:
    """The store's clock, set by the test."""

    def __init__(self):
        self.at = NOW

    def __call__(self):
        return self.at


@asynccontextmanager
async def gated(clock=None, **topics):
    """A world whose handlers wait for `world.gate`."""
    world = World(**topics)
    if clock is not None:
        world.server = MemoryServer(clock=clock)
        world.store = type(world.store)(world.server, "online")
    world.gate = asyncio.Event()

    async def handle(message):
        await world.gate.wait()
        world.handled.append(message)

    world.handle = handle
    async with world:
        yield world
        world.gate.set()


class Later:
    """A node, or its store, after a second in which nothing has changed."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return Later(self._inner.store) if name == "store" else getattr(self._inner, name)

    def now(self):
        return self._inner.now() + SECOND


async def looked(node, project="acme") -> NodeAnswer:
    return await QueueInspector(node, 0.0).inspect(project)
