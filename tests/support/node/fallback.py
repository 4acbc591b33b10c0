"""A node with a fallback, which gets the messages that would otherwise be dead-lettered."""

from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.keyed import QUICK, KeyedWorld
from tests.support.node.world import topic


class FallbackWorld(KeyedWorld):
    """`taken` has the (id, attempt, reason, error) of each call of the fallback, which then runs `fallback_act`. The
    handler fails by default.
    """

    def __init__(self, **topics):
        super().__init__(**(topics or {"acme": topic(max_attempts=2, backoff=QUICK, ack_wait=0.3)}))
        self.taken = []
        self.act = self.fails
        self.fallback_act = self.nothing

    async def fails(self, message):
        raise ValueError("no good")

    async def fallback(self, message):
        self.taken.append((message.id, message.attempt, message.reason, message.error))
        await self.fallback_act(message)

    async def node_with_fallback(self, handler=None, fallback=None, **options):
        return await self.node(handler or self.handle, fallback=Handler.of(fallback or self.fallback), **options)

    def dead_letters(self):
        """The reason and error of each dead letter."""
        found = [h.decode(each.headers) for each in self.dead()]
        return [(each[h.REASON], each[h.ERROR]) for each in found]


def raising(error):
    """An `act` that raises `error`."""

    async def act(message):
        raise error

    return act
