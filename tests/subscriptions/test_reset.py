"""A subscription is reset while its nodes work, and while none does, on whole nodes in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from evenlane.engine.control.subscriptions.start_point import StartPoint
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.producer.put import Put
from tests.days.cluster import VirtualCluster, VirtualNode
from tests.simulation.loop import SECOND
from tests.support.until import until
from tests.support.virtual_time import run_virtually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.producer.producer import Producer

_EPOCH = 1_790_000_000 * SECOND
_SOON_S = 60.0
FIRST, NEW = StartPoint("first", 0), StartPoint("new", None)


class ResetCluster(VirtualCluster):
    """Handlers of `audit` note when they start and end, and wait for `free` if their message's id is in `slow`. Those
    of the unnamed subscription wait for `unnamed`.
    """

    def __init__(self, *of: Any, **settings: Any) -> None:
        super().__init__(*of, **settings)
        self.slow: set[str] = set()
        self.free, self.unnamed = asyncio.Event(), asyncio.Event()
        self.running: list[str] = []  # keys
        self.twice: list[str] = []  # keys with two handlers at once
        self.started: list[str] = []
        self._graves: list[Any] = []

    def kill(self, node: VirtualNode) -> None:
        """End a process without notice: `kill -9`."""
        self._graves += self.loop.kill(node)
        self.nodes.remove(node)
        self.running.clear()

    async def handle(self, message: Message) -> None:
        if not message.subscription:
            await self.unnamed.wait()
            self.handled[""].append(message.id)
            return
        self.started.append(message.id)
        key = message.key or message.id
        self.twice += [key] if key in self.running else []
        self.running.append(key)
        try:
            if message.id in self.slow:
                self.slow.discard(message.id)
                await self.free.wait()
            await super().handle(message)
        finally:
            self.running.remove(key)


def run(main: Callable[[ResetCluster, Producer], Coroutine[Any, Any, None]], **topic: Any) -> None:
    """Run `main(cluster, producer)` in virtual time, with a topic `acme`, a node of the unnamed subscription that
    settles nothing, and the subscription `audit`.
    """

    async def whole(loop: Any) -> None:
        async with ResetCluster(loop, _EPOCH) as cluster:
            await cluster.start("n1")
            await cluster.topic("acme", **topic)
            await cluster.create("audit")
            await main(cluster, await cluster.producer())
            cluster.unnamed.set()
            cluster.free.set()
            await empty(cluster)
            assert not cluster.refused
            assert not cluster.twice

    run_virtually(whole)


def in_lanes(cluster: ResetCluster) -> int:
    return sum(len(cluster.server.messages(f"LANES_online_{partition}")) for partition in range(8))


async def empty(cluster: ResetCluster) -> None:
    await until(lambda: in_lanes(cluster) == 0, _SOON_S, "the lanes to be empty")


async def put(cluster: ResetCluster, producer: Producer, what: str, count: int = 20, **fields: Any) -> list[str]:
    ids = [f"{what}-{number}" for number in range(count)]
    await cluster.put(producer, [Put("acme", b"x", id=each, **fields) for each in ids])
    return ids


async def handled(cluster: ResetCluster, ids: list[str], times: int) -> None:
    """Wait until audit has handled each of these so often."""
    done = cluster.handled["audit"]
    await until(
        lambda: all(done.count(each) >= times for each in ids), _SOON_S, f"audit to handle all {times} times"
    )  # fmt: skip


def now(cluster: ResetCluster) -> StartPoint:
    at = cluster.server.clock()
    return StartPoint("a time", at)


class TestWhileNodesRun:
    def test_messages_since_a_time_come_again(self) -> None:
        """K10: once each, and none of before."""

        async def main(cluster: ResetCluster, producer: Producer) -> None:
            await cluster.start("a1", subscription="audit")
            await cluster.start("a2", subscription="audit")
            before = await put(cluster, producer, "before")
            await handled(cluster, before, 1)
            time = now(cluster)
            after = await put(cluster, producer, "after")
            await handled(cluster, after, 1)
            reset = await cluster.resetting("audit")
            assert not await reset.run(time)
            await handled(cluster, after, 2)
            more = await put(cluster, producer, "more")
            await handled(cluster, more, 1)
            cluster.unnamed.set()
            await empty(cluster)
            assert sorted(cluster.handled["audit"]) == sorted(before + after + after + more)

        run(main)

    def test_twice_to_the_first(self) -> None:
        """K10: each reset counts."""

        async def main(cluster: ResetCluster, producer: Producer) -> None:
            await cluster.start("a1", subscription="audit")
            ids = await put(cluster, producer, "one")
            await handled(cluster, ids, 1)
            for times in (2, 3):
                reset = await cluster.resetting("audit")
                await reset.run(FIRST)
                await handled(cluster, ids, times)

        run(main)

    def test_new_skips_what_waits(self) -> None:
        """K10: also the retries; what is put afterwards comes."""

        async def main(cluster: ResetCluster, producer: Producer) -> None:
            await cluster.start("a1", subscription="audit")
            failing = await put(cluster, producer, "failing", headers={"order": "fail 1"})
            await until(lambda: all(cluster.started.count(each) == 1 for each in failing), _SOON_S)
            reset = await cluster.resetting("audit")
            await reset.run(NEW)
            after = await put(cluster, producer, "after")
            await handled(cluster, after, 1)
            cluster.unnamed.set()
            await empty(cluster)
            again = cluster.server.messages
            await until(lambda: not again("AGAIN_online_audit"), _SOON_S, "audit's retries to be dropped")
            assert sorted(after) == sorted(cluster.handled["audit"])

        run(main, backoff={"base": 60, "factor": 1, "jitter": 0})

    def test_keys_wait_for_handlers_of_before(self) -> None:
        """Order, K10: no two messages of a key at once; those that run are handled again."""

        async def main(cluster: ResetCluster, producer: Producer) -> None:
            await cluster.start("a1", subscription="audit")
            cluster.slow = {"k-0", "other-0"}
            keyed = await put(cluster, producer, "k", 5, key="k")
            other = await put(cluster, producer, "other", 5, key="other")
            await until(lambda: sorted(cluster.running) == ["k", "other"], _SOON_S)
            await (await cluster.resetting("audit")).run(FIRST)
            free = await put(cluster, producer, "free", 5)
            await handled(cluster, free, 1)
            assert ["k", "other"] == sorted(cluster.running)
            cluster.free.set()
            await handled(cluster, keyed + other, 1)
            await handled(cluster, keyed[:1] + other[:1], 2)
            for key in (keyed, other):
                mine = [each for each in cluster.started if each in key]
                assert [key[0], *key] == mine

        run(main, ordered=True)

    def test_owner_dies_in_the_middle(self) -> None:
        """L, K10: another node begins where the reset says."""

        async def main(cluster: ResetCluster, producer: Producer) -> None:
            first = await cluster.start("a1", subscription="audit")
            ids = await put(cluster, producer, "one", 200)
            await handled(cluster, ids, 1)
            running = asyncio.create_task((await cluster.resetting("audit")).run(FIRST))
            await until(lambda: len(cluster.handled["audit"]) > len(ids), _SOON_S)
            cluster.kill(first)
            await running
            await cluster.start("a2", subscription="audit")
            await handled(cluster, ids, 2)

        run(main)


class TestWithoutNodes:
    def test_next_owner_begins_there(self) -> None:
        """K10: the command ends at once, and nothing is removed until then."""

        async def main(cluster: ResetCluster, producer: Producer) -> None:
            cluster.unnamed.set()
            node = await cluster.start("a1", subscription="audit")
            await cluster.start("b1", subscription=None)
            await cluster.create("keeper")
            ids = await put(cluster, producer, "one")
            await handled(cluster, ids, 1)
            await cluster.stop(node)
            await (await cluster.resetting("audit")).run(FIRST)
            await cluster.delete("keeper")
            more = await put(cluster, producer, "more")
            await until(lambda: {*ids, *more} <= {*cluster.handled[""]}, _SOON_S)
            await asyncio.sleep(30)  # of virtual time, in which the unnamed subscription would remove them
            assert in_lanes(cluster) == len(ids + more)
            await cluster.start("a2", subscription="audit")
            await handled(cluster, ids, 2)
            await handled(cluster, more, 1)

        run(main)


def test_delayed_messages_come_again_if_due_since_then() -> None:
    """K10: whenever they were put."""

    async def main(cluster: ResetCluster, producer: Producer) -> None:
        await cluster.start("a1", subscription="audit")
        ids = await put(cluster, producer, "early", 5, delay=1) + await put(cluster, producer, "late", 5, delay=20)
        await handled(cluster, ids[:5], 1)
        time = now(cluster)
        await handled(cluster, ids[5:], 1)
        await (await cluster.resetting("audit")).run(time)
        await handled(cluster, ids[5:], 2)
        cluster.unnamed.set()
        assert not [each for each in ids[:5] if cluster.handled["audit"].count(each) != 1]

    run(main)


def test_time_to_live_begins_with_the_reset() -> None:
    """K5, K10: otherwise everything that comes again would have expired."""

    async def main(cluster: ResetCluster, producer: Producer) -> None:
        await cluster.start("a1", subscription="audit")
        ids = await put(cluster, producer, "one", 5)
        await handled(cluster, ids, 1)
        await asyncio.sleep(300)  # of virtual time
        await (await cluster.resetting("audit")).run(FIRST)
        await handled(cluster, ids, 2)

    run(main, ttl=60, ack_wait=3600)


@pytest.mark.parametrize("name", ["nobody"])
def test_one_that_isnt_there(name: str) -> None:
    """K10: one sentence, which lists those that are."""

    async def main(cluster: ResetCluster, _producer: Producer) -> None:
        with pytest.raises(EvenlaneError, match="has no subscription 'nobody': there are audit, and the one"):
            await (await cluster.resetting(name)).run(FIRST)

    run(main)
