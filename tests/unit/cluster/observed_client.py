"""A client of etcd in memory that knows what the readers of its watches have handled."""

import asyncio

from evenlane.ring.coordination.ports import Listing
from tests.support.membership_cluster import Client


class ObservedWatch:
    """A watch with the revision that its reader has handled. It yields nothing while `gate` is cleared."""

    def __init__(self, watch, on_close):
        self._watch, self._on_close, self._yielded = watch, on_close, 0
        self.handled = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.handled = self._yielded
        await self.gate.wait()
        update = await anext(self._watch)
        self._yielded = update.revision if isinstance(update, Listing) else update.item.mod_revision
        return update

    async def aclose(self):
        self._on_close(self)
        await self._watch.aclose()


class ObservedClient(Client):
    """Keeps its open watches by the kind of their keys. Those of the kinds in `held_back` start with a cleared gate."""

    def __init__(self, store=None):
        super().__init__(store)
        self.watches, self.held_back = {}, set()

    def peer(self):
        return ObservedClient(self.store)

    def watch(self, prefix):
        kind = prefix.split("/")[3]

        def on_close(closed):
            if self.watches.get(kind) is closed:
                del self.watches[kind]

        made = self.watches[kind] = ObservedWatch(super().watch(prefix), on_close)
        if kind in self.held_back:
            made.gate.clear()
        return made

    def has_handled(self, kind, revision):
        """Whether the reader of this kind of keys has handled all changes up to this revision."""
        return kind in self.watches and self.watches[kind].handled >= revision
