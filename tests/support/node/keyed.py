"""Worlds that note what begins and ends of each key, and let handlers and processes end as a test says."""

import asyncio
import random
from collections import defaultdict
from itertools import groupby
from typing import NamedTuple

from evenlane.engine.core.message.message import Pause, Reject, Retry
from evenlane.engine.core.wire import headers as h
from tests.support.node.world import World, topic
from tests.support.until import until

KEYS = ["a", "b", "c", "d", "e", None]
QUICK = {"base": 0.01, "factor": 1, "jitter": 0}  # backoff


class Begun(NamedTuple):
    id: str
    attempt: int


def ordered(**fields):
    return topic(**{"ordered": True, "backoff": QUICK, "max_attempts": 3, **fields})


class Keyed(World):
    """`act(message)` is what the handler does. By key and queue: `begun`, the `running`, `together` (two at once)."""

    def __init__(self, **topics):
        super().__init__(**(topics or {"acme": ordered()}))
        self.begun: dict[tuple, list[Begun]] = defaultdict(list)
        self.running: dict[tuple, list[str]] = defaultdict(list)
        self.put_to: dict[tuple, list[str]] = defaultdict(list)
        self.together: list[tuple] = []
        self.failed: list[Begun] = []
        self.act = self.nothing

    async def nothing(self, message):
        """It succeeds at once."""

    async def handle(self, message):
        self.starts(message)
        try:
            await self.act(message)
        except BaseException:
            self.failed.append(Begun(message.id, message.attempt))
            raise
        finally:
            self.running[of(message)].remove(message.id)
        self.handled.append(message)

    def starts(self, message):
        key = of(message)
        if message.key is not None and self.running[key]:
            self.together.append((key, *self.running[key], message.id))
        self.running[key].append(message.id)
        self.begun[key].append(Begun(message.id, message.attempt))

    async def put_key(self, key, **options):
        """A message of this key; returns the id."""
        options = {"project": "acme", "group": 0, "priority": "mid", **options}
        headers = {h.KEY: key} if key is not None else {}
        own = await self.put(b"x" * options.pop("size", 1), **options, headers=headers)
        self.put_to[options["project"], options["group"], options["priority"], key].append(own)
        return own

    async def put_keys(self, keys, **options):
        return [await self.put_key(key, **options) for key in keys]

    def ids_of(self, key, group=0, priority="mid", project="acme"):
        """What began of a key, in order, attempts one after the other counted once."""
        return [own for own, _ in groupby(each.id for each in self.begun[project, group, priority, key])]

    def in_order(self):
        """Each key's messages began in put order, each after the former had ended for good."""
        assert [] == self.together
        for place, put in self.put_to.items():
            if place[-1] is not None:
                assert [own for own in put if own in set(self._of(place))] == self._of(place), place

    def _of(self, place):
        return [own for own, _ in groupby(each.id for each in self.begun[place])]

    async def changed(self, node, **fields):
        """The topic has other rules from now on."""
        self.topics["acme"] = topic(**fields)
        node.topic_changed("acme", self.topics["acme"])

    async def stop(self, node):
        """In peace."""
        self.nodes.remove(node)
        clean = await node.stop(2)
        await node.store.close()
        return clean

    async def all_over(self, timeout=6.0):
        """Everything has ended, and is durably settled."""
        await until(lambda: self.waiting() == 0, timeout, f"all to be settled; begun: {dict(self.begun)}")

    async def begins(self, *ids):
        """Wait until these have begun."""
        await until(lambda: set(ids) <= {each.id for every in self.begun.values() for each in every}, what=str(ids))


def of(message):
    """The key in its queue."""
    return message.project, message.group, message.priority, message.key


class Held:
    """An `act` in which those in `ids` wait until they are let go."""

    def __init__(self, *ids):
        self._events = {own: asyncio.Event() for own in ids}

    async def __call__(self, message):
        if message.id in self._events:
            await self._events[message.id].wait()

    def go(self, *ids):
        for own in ids or self._events:
            self._events[own].set()


class Deadly(Keyed):
    """Messages in `deadly` run until their process dies of it. Of each node, in turn, what `killed` it."""

    def __init__(self, **topics):
        super().__init__(**(topics or {"acme": topic(backoff=QUICK, max_attempts=3)}))
        self.deadly, self.waits = set(), Held()
        self.killed: list[str] = []
        self.kills: str | None = None
        self.suspects: set[str] = set()
        self.act = self.live

    async def live(self, message):
        if message.suspect:
            assert not self.suspects, f"{self.suspects} and {message.id} are suspects, and run at once"
            self.suspects.add(message.id)
        try:
            if message.id in self.deadly:
                self.kills = message.id
                await asyncio.Event().wait()
            await self.waits(message)
        finally:
            self.suspects.discard(message.id)

    async def next_node(self, **options):
        """One that lives until it dies of a message, or all is over: whether it died."""
        self.kills = None
        node = await self.node(self.handle, **options)
        await until(lambda: self.kills or self.waiting() == 0, what=f"an end; begun: {dict(self.begun)}")
        if self.kills is None:
            return False
        self.killed.append(self.kills)
        await self.crash(node)
        return True

    async def lives(self, most, **options):
        """One node after the other, until all is over; at most so many deaths."""
        while await self.next_node(**options):
            assert len(self.killed) <= most

    async def dies_with(self, *ids, deaths=2, **options):
        """So many nodes, one after the other, die with these in flight: the first death counts nothing of what was put
        before it, the second makes suspects of them. They wait at the next one, too, until `waits` lets them go.
        """
        self.waits = Held(*ids)
        for _ in range(deaths):
            node = await self.node(self.handle, **options)
            await until(lambda node=node: set(ids) <= {message.id for message in node.workers.running})
            await self.crash(node)

    def dead_letters(self):
        """Of each dead letter, by id: reason and attempt."""
        found = [h.decode(each.headers) for each in self.dead()]
        return {each[h.ID].split(":")[1]: (each[h.REASON], each[h.ATTEMPT]) for each in found}


class Chance:
    """Handlers of random lengths that fail at random, the same for one seed whatever the timing."""

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
            self.paused.add(message.id)  # it costs no attempt, so it would be for ever
            raise Pause(draw.choice([0, 0.01]))
        if chance < 0.195 and self.hangs:
            await asyncio.sleep(60)  # until ack_wait is over


def failing(*ids):
    """An `act` in which these fail, whatever the attempt."""

    async def act(message):
        if message.id in ids:
            raise ValueError("no good")

    return act
