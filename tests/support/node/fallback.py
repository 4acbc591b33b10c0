"""A node with a fallback, which takes what would become a dead letter."""

from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.keyed import QUICK, Keyed
from tests.support.node.world import topic


class Falling(Keyed):
    """Of what its `fallback` got: `taken` as (id, attempt, reason, error); it does what `last` says."""

    def __init__(self, **topics):
        super().__init__(**(topics or {"acme": topic(max_attempts=2, backoff=QUICK, ack_wait=0.3)}))
        self.taken = []
        self.act = self.fails
        self.last = self.nothing

    async def fails(self, message):
        raise ValueError("no good")

    async def fallback(self, message):
        self.taken.append((message.id, message.attempt, message.reason, message.error))
        await self.last(message)

    async def falling(self, handler=None, fallback=None, **options):
        return await self.node(handler or self.handle, fallback=Handler.of(fallback or self.fallback), **options)

    def dead_letters(self):
        """Of each dead letter: reason and error."""
        found = [h.decode(each.headers) for each in self.dead()]
        return [(each[h.REASON], each[h.ERROR]) for each in found]


def raising(error):
    async def last(message):
        raise error

    return last
