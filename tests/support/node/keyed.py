"""Worlds that record the starts and ends of each key's messages, and let a test end handlers and processes."""

import asyncio
import random
from collections import defaultdict
from itertools import groupby
from typing import NamedTuple

from evenlane.engine.core.message.handler_exceptions import Pause, Reject, Retry
from evenlane.engine.core.wire import headers as h
from tests.support.node.world import World, change, topic
from tests.support.until import until

KEYS = ["a", "b", "c", "d", "e", None]
QUICK = {"base": 0.01, "factor": 1, "jitter": 0}  # backoff


class Begun(NamedTuple):
    id: str
    attempt: int


def ordered(**fields):
    return topic(**{"ordered": True, "backoff": QUICK, "max_attempts": 3, **fields})


class KeyedWorld(World):
    """The handler runs `act(message)`. Per key and queue, `begun` has the started attempts, `running` the ids that run,
    `put_by_key` the ids in put order; `overlaps` has the messages of one key that ran at the same time.
    """

    def __init__(self, **topics):
        super().__init__(**(topics or {"acme": ordered()}))
        self.begun: dict[tuple, list[Begun]] = defaultdict(list)
        self.running: dict[tuple, list[str]] = defaultdict(list)
        self.put_by_key: dict[tuple, list[str]] = defaultdict(list)
        self.overlaps: list[tuple] = []
        self.act = self.nothing

    async def nothing(self, message):
        """Succeeds at once."""

    async def handle(self, message):
        self.on_start(message)
        try:
            await self.act(message)
        finally:
            self.running[_key_of(message)].remove(message.id)
        self.handled.append(message)

    def on_start(self, message):
        key = _key_of(message)
        if message.key is not None and self.running[key]:
            self.overlaps.append((key, *self.running[key], message.id))
        self.running[key].append(message.id)
        self.begun[key].append(Begun(message.id, message.attempt))

    async def put_key(self, key, **options):
        """Put a message with this key. Returns its id."""
        options = {"project": "acme", "group": 0, "priority": "mid", **options}
        headers = {h.KEY: key} if key is not None else {}
        message_id = await self.put(b"x" * options.pop("size", 1), **options, headers=headers)
        self.put_by_key[options["project"], options["group"], options["priority"], key].append(message_id)
        return message_id

    async def put_keys(self, keys, **options):
        return [await self.put_key(key, **options) for key in keys]

    def ids_of(self, key, group=0, priority="mid", project="acme"):
        """The ids of a key in the order of their starts. Consecutive attempts count once."""
        return self._ids_at((project, group, priority, key))

    def _ids_at(self, key):
        return [message_id for message_id, _ in groupby(each.id for each in self.begun[key])]

    def assert_in_order(self):
        """The messages of each key started in put order, each after the previous one had ended finally."""
        assert [] == self.overlaps
        for key, put in self.put_by_key.items():
            if key[-1] is not None:
                assert [message_id for message_id in put if message_id in set(self._ids_at(key))] == self._ids_at(
                    key
                ), key

    async def changed(self, node, **fields):
        """Give the topic other rules."""
        change(self, node, topic(**fields))

    async def stop(self, node):
        """Drain the node. True if all ended in time."""
        self.nodes.remove(node)
        clean = await node.stop(2)
        await node.store.close()
        return clean

    async def until_begun(self, *ids):
        await until(lambda: set(ids) <= {each.id for every in self.begun.values() for each in every}, what=str(ids))


def _key_of(message):
    """The key in its queue."""
    return message.project, message.group, message.priority, message.key


class Held:
    """An `act` that holds the messages in `ids` until `go`."""

    def __init__(self, *ids):
        self._events = {message_id: asyncio.Event() for message_id in ids}

    async def __call__(self, message):
        if message.id in self._events:
            await self._events[message.id].wait()

    def go(self, *ids):
        for message_id in ids or self._events:
            self._events[message_id].set()


class PoisonWorld(KeyedWorld):
    """Messages in `deadly` run until they kill their process. `killers` has, per killed node, the message that killed
    it; `suspects` the suspects that run.
    """

    def __init__(self, **topics):
        super().__init__(**(topics or {"acme": topic(backoff=QUICK, max_attempts=3)}))
        self.deadly, self.waits = set(), Held()
        self.killers: list[str] = []
        self.killer: str | None = None
        self.suspects: set[str] = set()
        self.act = self.live

    async def live(self, message):
        if message.is_suspect:
            assert not self.suspects, f"{self.suspects} and {message.id} are suspects, and run at once"
            self.suspects.add(message.id)
        try:
            if message.id in self.deadly:
                self.killer = message.id
                await asyncio.Event().wait()
            await self.waits(message)
        finally:
            self.suspects.discard(message.id)

    async def run_node(self, **options):
        """Run a node until a message kills it, or all messages are settled. True if it was killed."""
        self.killer = None
        node = await self.node(self.handle, **options)
        await until(lambda: self.killer or self.waiting() == 0, what="a death, or all messages to be settled")
        if self.killer is None:
            return False
        self.killers.append(self.killer)
        await self.crash(node)
        return True

    async def run_nodes(self, max_deaths, **options):
        """Run one node after another until all messages are settled, with at most `max_deaths` deaths."""
        while await self.run_node(**options):
            assert len(self.killers) <= max_deaths

    async def crash_with(self, *ids, deaths=2, **options):
        """Crash `deaths` nodes, one after another, while these messages are in flight. The first death counts no
        attempt of messages that were put before it; the second makes them suspects. They also wait on the next node,
        until `waits.go()`.
        """
        self.waits = Held(*ids)
        for _ in range(deaths):
            node = await self.node(self.handle, **options)
            await until(lambda node=node: set(ids) <= {message.id for message in node.workers.running})
            await self.crash(node)

    def dead_letters(self):
        """The (reason, attempt) of each dead letter, by id."""
        found = [h.decode(each.headers) for each in self.dead()]
        return {each[h.ID].split(":")[1]: (each[h.REASON], each[h.ATTEMPT]) for each in found}


class RandomHandler:
    """An `act` of random length that fails at random. A seed determines all of it, whatever the timing."""

    def __init__(self, seed, hangs=True):
        self.seed, self.hangs = seed, hangs
        self.paused = set()

    async def __call__(self, message):
        draw = random.Random(f"{self.seed} {message.id} {message.attempt}")
        for _ in range(draw.choice([0, 0, 1, 3, 10])):
            await asyncio.sleep(0)
        if draw.random() < 0.1:
            await asyncio.sleep(0.003)
        chance = draw.random()
        if chance < 0.1:
            raise ValueError("no")
        if chance < 0.15:
            raise Retry(after=draw.choice([0, 0.005, 0.02]))
        if chance < 0.18:
            raise Reject("not wanted")
        if chance < 0.19 and message.id not in self.paused:
            self.paused.add(message.id)  # a pause costs no attempt, so it would repeat for ever
            raise Pause(draw.choice([0, 0.01]))
        if chance < 0.195 and self.hangs:
            await asyncio.sleep(60)  # until ack_wait is over


def failing(*ids):
    """An `act` in which these messages fail in each attempt."""

    async def act(message):
        if message.id in ids:
            raise ValueError("no good")

    return act
