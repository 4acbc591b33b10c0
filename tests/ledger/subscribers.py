"""Two subscriptions of one environment on real servers, each with nodes and a ledger of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from evenlane.engine.core.wire import headers as h
from evenlane.engine.producer.put import Put
from tests.ledger.cli import patiently
from tests.ledger.cluster import ProcessCluster
from tests.ledger.dead import DeadLetters
from tests.ledger.handlers import forgive
from tests.ledger.world import ProcessWorld
from tests.support.streams import all_stored
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from evenlane.engine.producer.producer import Producer
    from tests.ledger.process import NodeProcess

AUDIT = "audit"
PARTITIONS = 4
ORDERS = ("", "", "sleep 0.01", "first fail 1", "fail 3")  # the last one dies in each subscription
_EMPTY_S = 120.0


class Subscribers:
    """`first` is the unnamed subscription, `audit` the world of the other one's nodes. `put` puts a mixture: messages,
    delayed messages, retries and messages that die.
    """

    def __init__(self, first: ProcessCluster, audit: ProcessWorld) -> None:
        self.first, self.audit = first, audit
        self._numbers = count()
        self._producer: Producer | None = None

    async def start(self, *nodes: str, **settings: object) -> list[NodeProcess]:
        """Start nodes of the unnamed subscription, with topics."""
        started = await self.first.start(*nodes, **settings)
        await self.first.topics(*self.first.projects)
        self._producer = await self.first.producer()
        return started

    async def start_audit(self, *nodes: str, **settings: object) -> list[NodeProcess]:
        made = [self.audit.add_node(name=name, subscription=AUDIT, **settings) for name in nodes]
        await asyncio.gather(*(node.start() for node in made))
        return made

    async def start_both(self, **settings: object) -> dict[str, list[NodeProcess]]:
        """Start two nodes of each subscription, `first` and `audit`."""
        first = await self.start("a", "b", **settings)
        await self.command("create", AUDIT)
        return {"first": first, "audit": await self.start_audit("x", "y", **settings)}

    async def start_again(self, node: NodeProcess) -> None:
        """Start a new process for a node that has ended."""
        await self.start_beside(node, node.name)

    async def start_beside(self, node: NodeProcess, name: str) -> None:
        """Start a node of the same subscription."""
        if node in self.audit.nodes:
            await self.start_audit(name)
        else:
            await self.first.start(name)

    def leader_of(self, subscription: str) -> NodeProcess | None:
        """The node that leads this subscription, if one does."""
        history, nodes = self.first.history, (self.first if subscription == "first" else self.audit).nodes
        name = history.leader if subscription == "first" else history.value(f"subscription/{AUDIT}/leader").get("id")
        return next((node for node in reversed(nodes) if node.name == name and node.running), None)

    async def command(self, *arguments: str) -> dict[str, Any]:
        """Run `evenlane subscriptions ...` until it succeeds."""
        return await patiently(self.first, "subscriptions", *arguments, timeout=120)

    async def put(self, rounds: int = 10) -> set[str]:
        """Put a mixture. Returns the ids of those that were acknowledged."""
        assert self._producer is not None
        before = set(self.first.acknowledged)
        for _ in range(rounds):
            puts = []
            for project in self.first.projects:
                number = next(self._numbers)
                order = _order_of(number)
                puts.append(
                    Put(
                        project,
                        b"x",
                        id=f"{project}-{number}",
                        headers={"order": order} if order else None,
                        delay=0.5 if number % 3 == 0 else None,
                    )
                )
            await self.first.put(self._producer, puts)
        return set(self.first.acknowledged) - before

    async def put_held(self) -> set[str]:
        """Put one message per project whose handlers run until `let_go`, and hold all that comes after it."""
        assert self._producer is not None
        puts = [Put(each, b"x", id=f"{each}-held", headers={"order": "held 0"}) for each in self.first.projects]
        await self.first.put(self._producer, puts)
        ids = {str(each.id) for each in puts}
        await until(lambda: ids <= {*self.first.ids("begin")}, 60, "handlers to hold the messages")
        return ids

    def let_go(self) -> None:
        for world in (self.first, self.audit):
            forgive(world.folder / "ledger")

    def times_handled(self, ids: Iterable[str]) -> Counter[str]:
        """How often audit has begun each of these."""
        counted = Counter(self.audit.ids("begin"))
        return Counter({each: counted[each] for each in ids})

    async def stored(self) -> set[str]:
        """The ids of the messages in the lanes that were put as such."""
        found = await all_stored(self.first.servers.nats.url, "online", self.first.partitions)
        heads = [h.value(each.headers, h.ID) or "" for each in found if h.value(each.headers, h.ORIGIN) is None]
        return {head.partition(":")[2] for head in heads}

    async def streams(self) -> list[str]:
        return [*(await self.first.api("STREAM.NAMES"))["streams"]]

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Put a mixture all the time while the block runs."""
        ended = asyncio.Event()

        async def put() -> None:
            while not ended.is_set():
                await self.put(1)
                await asyncio.sleep(0.02)

        putting = asyncio.create_task(put())
        try:
            yield
        finally:
            ended.set()
            await putting

    async def ended_in(self, world: ProcessWorld, ids: set[str]) -> None:
        """Wait until a subscription has handled or buried all of these."""
        cluster = "online" if world is self.first else f"online_{AUDIT}"
        left = {*ids}

        async def all_ended() -> bool:
            left.difference_update(world.ids())
            if left and not [each for each in left if not _is_hopeless(each)]:
                left.difference_update(await dead.ids())
            return not left

        async with DeadLetters(self.first.servers.nats.url, cluster) as dead:
            try:
                await until(all_ended, 120, "all to be handled or dead")
            except AssertionError as error:
                raise AssertionError(f"{len(left)} of {len(ids)} not ended, {sorted(left)[:5]}: {error}") from None

    async def all_ended(self) -> None:
        """Wait until each subscription has handled or buried all that was acknowledged, and nothing of it is stored."""
        acknowledged = set(self.first.acknowledged)
        await self.ended_in(self.first, acknowledged)
        await self.ended_in(self.audit, acknowledged)
        await self.empty()

    async def empty(self) -> None:
        """Wait until the shared streams have no message any more."""
        await until(self._is_empty, _EMPTY_S, "the shared streams to be empty")

    async def _is_empty(self) -> bool:
        names = [f"{kind}_online_{number}" for kind in ("LANES", "LATER") for number in range(self.first.partitions)]
        infos = await asyncio.gather(*(self.first.api(f"STREAM.INFO.{name}") for name in names))
        return all(info["state"]["messages"] == 0 for info in infos)


@asynccontextmanager
async def subscribers(folder: Path, *, servers: Any = None, **settings: object) -> AsyncIterator[Subscribers]:
    """Two worlds of the same servers: these, or a nats-server and an etcd of their own. `settings` are for both."""
    (folder / "first").mkdir()
    (folder / "audit").mkdir()
    settings = {"partitions": PARTITIONS, **settings}
    async with (
        ProcessCluster(folder / "first", servers=servers, **settings) as first,
        ProcessWorld(folder / "audit", servers=first.servers, **settings) as audit,
    ):
        yield Subscribers(first, audit)


def _order_of(number: int) -> str:
    return ORDERS[number % len(ORDERS)]


def _is_hopeless(own: str) -> bool:
    number = own.rpartition("-")[2]
    return number.isdigit() and _order_of(int(number)) == ORDERS[-1]
