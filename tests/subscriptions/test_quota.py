"""A topic's quota for one subscription, on whole nodes in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from evenlane.engine.producer.put import Put
from tests.days.cluster import VirtualCluster
from tests.simulation.loop import SECOND
from tests.support.until import until
from tests.support.virtual_time import run_virtually

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOCH = 1_790_000_000 * SECOND
_COUNT = 400


def test_subscription_runs_at_its_own_rate_beside_the_topics() -> None:
    """K10, E3: `audit` at 20 per second, also with two nodes that share it, and the unnamed one at 100. Taken back, the
    rest is handled at the topic's rate.
    """

    async def main(loop: Any) -> None:
        async with VirtualCluster(loop, _EPOCH) as cluster:
            await cluster.start("n1")
            await cluster.topic("acme", qps=100, subscriptions={"audit": {"qps": 20}})
            await cluster.create("audit")
            await cluster.start("a1", subscription="audit")
            await cluster.start("a2", subscription="audit")
            producer = await cluster.producer()
            begin = asyncio.get_running_loop().time()

            def rate(subscription: str) -> float:
                return len(cluster.handled[subscription]) / (asyncio.get_running_loop().time() - begin)

            await cluster.put(producer, [Put("acme", b"x", id=f"m-{number}") for number in range(_COUNT)])
            await until(has(cluster, "", _COUNT), 60.0, "the unnamed one to handle all")
            assert 60 <= rate("") <= 105
            await until(has(cluster, "audit", _COUNT // 2), 60.0, "audit to handle half")
            assert 12 <= rate("audit") <= 21
            await cluster.topic("acme", qps=100, subscriptions={"audit": None})
            begin, done = asyncio.get_running_loop().time(), len(cluster.handled["audit"])
            await until(has(cluster, "audit", _COUNT), 60.0, "audit to handle all")
            assert (_COUNT - done) / (asyncio.get_running_loop().time() - begin) >= 50
            assert not cluster.refused

    run_virtually(main)


def has(cluster: VirtualCluster, subscription: str, count: int) -> Callable[[], bool]:
    return lambda: len(cluster.handled[subscription]) >= count
