"""Settled messages are kept for a while, on whole nodes in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from evenlane.engine.cluster.subscriptions.registry import Retain
from evenlane.engine.control.subscriptions.start_point import StartPoint
from evenlane.engine.producer.put import Put
from tests.days.cluster import VirtualCluster
from tests.simulation.loop import SECOND
from tests.support.until import until
from tests.support.virtual_time import run_virtually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from evenlane.engine.producer.producer import Producer

_EPOCH = 1_790_000_000 * SECOND
_HOUR_S = 3_600.0
HOUR = Retain(age=3_600 * SECOND, most_bytes=1 << 30)


def run(main: Callable[[VirtualCluster, Producer], Coroutine[Any, Any, None]]) -> None:
    """Run `main(cluster, producer)` in virtual time, with a topic `acme` and a node of the unnamed subscription."""

    async def whole(loop: Any) -> None:
        async with VirtualCluster(loop, _EPOCH) as cluster:
            await cluster.start("n1")
            await cluster.topic("acme", qps=10_000)
            await main(cluster, await cluster.producer())
            assert not cluster.refused

    run_virtually(whole)


async def put(cluster: VirtualCluster, producer: Producer, count: int, body: bytes = b"x", **fields: Any) -> list[str]:
    before = len(cluster.handled[""])
    ids = [f"m{before + number}" for number in range(count)]
    await cluster.put(producer, [Put("acme", body, id=each, **fields) for each in ids])
    await until(lambda: len(cluster.handled[""]) == before + count, 2 * _HOUR_S, "all to be handled")
    return ids


def test_settled_messages_stay_for_the_time_and_then_go() -> None:
    """K10: delayed ones, too, whose time counts from when they are settled."""

    async def main(cluster: VirtualCluster, producer: Producer) -> None:
        await cluster.retain(HOUR)
        await put(cluster, producer, 20)
        await put(cluster, producer, 5, delay=1_800)
        assert cluster.waiting() == 25
        await asyncio.sleep(0.4 * _HOUR_S)  # the first ones are 54 minutes old
        assert cluster.waiting() == 25
        await asyncio.sleep(0.3 * _HOUR_S)
        assert cluster.waiting() == 5
        await asyncio.sleep(0.6 * _HOUR_S)
        assert cluster.waiting() == 0

    run(main)


def test_new_subscription_and_reset_get_what_was_kept() -> None:
    """K10: what everybody had handled comes again."""

    async def main(cluster: VirtualCluster, producer: Producer) -> None:
        await cluster.retain(HOUR)
        ids = await put(cluster, producer, 20)
        await cluster.create("audit", StartPoint("first", 0))
        await cluster.start("a1", subscription="audit")
        audit = cluster.handled["audit"]
        await until(lambda: sorted(audit) == sorted(ids), 60.0, "audit to handle all")
        await (await cluster.resetting("audit")).run(StartPoint("first", 0))
        await until(lambda: sorted(audit) == sorted(ids * 2), 60.0, "audit to handle all again")
        assert sorted(cluster.handled[""]) == sorted(ids)

    run(main)


def test_oldest_go_earlier_where_a_stream_has_too_many_bytes() -> None:
    """K10: a lane and a delay stream of each of 8 partitions have a 16th of the bytes each."""

    async def main(cluster: VirtualCluster, producer: Producer) -> None:
        await cluster.retain(Retain(age=100 * HOUR.age, most_bytes=16 * 10_000))
        await put(cluster, producer, 400, b"x" * 1_000)
        await until(lambda: max(sizes(cluster)) <= 10_000, _HOUR_S, "the streams to be small enough")
        await asyncio.sleep(_HOUR_S)
        assert max(sizes(cluster)) > 8_000
        assert max(sizes(cluster)) <= 10_000

    run(main)


def sizes(cluster: VirtualCluster) -> list[int]:
    """The bytes of each lane."""
    lanes = [cluster.server.messages(f"LANES_online_{partition}") for partition in range(8)]
    return [sum(len(each.headers) + len(each.body) for each in lane) for lane in lanes]


def test_kept_messages_go_once_nothing_is_to_be_kept() -> None:
    """K10: an owner that has started since then knows what its predecessor has kept."""

    async def main(cluster: VirtualCluster, producer: Producer) -> None:
        await cluster.retain(HOUR)
        await put(cluster, producer, 20)
        await put(cluster, producer, 5, delay=60)
        await cluster.start("n2")
        await cluster.stop(cluster.nodes[0])
        assert cluster.waiting() == 25
        await cluster.retain(None)
        await until(lambda: cluster.waiting() == 0, 60.0, "all to go")

    run(main)
