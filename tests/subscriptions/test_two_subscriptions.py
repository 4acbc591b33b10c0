"""Two subscriptions of one environment, on whole nodes in virtual time: each gets the messages as if it were alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlane.engine.errors import EvenlaneError
from evenlane.engine.producer.put import Put
from tests.days.cluster import VirtualCluster
from tests.simulation.loop import SECOND
from tests.support.until import until
from tests.support.virtual_time import run_virtually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from evenlane.engine.producer.producer import Producer

_EPOCH = 1_790_000_000 * SECOND
_SOON_S = 60.0


def run(main: Callable[[VirtualCluster, Producer], Coroutine[Any, Any, None]]) -> None:
    """Run `main(cluster, producer)` in virtual time, with a topic `acme` and a node `n1` of the unnamed one."""

    async def whole(loop: Any) -> None:
        async with VirtualCluster(loop, _EPOCH) as cluster:
            await cluster.start("n1")
            await cluster.topic("acme")
            await main(cluster, await cluster.producer())
            assert not cluster.refused

    run_virtually(whole)


async def put(cluster: VirtualCluster, producer: Producer, what: str, count: int = 50) -> set[str]:
    """Put messages, and return their ids."""
    ids = [f"{what}-{number}" for number in range(count)]
    await cluster.put(producer, [Put("acme", b"x", id=each) for each in ids])
    return {*ids}


async def reach(cluster: VirtualCluster, subscription: str, ids: set[str]) -> None:
    await until(lambda: ids <= {*cluster.handled[subscription]}, _SOON_S, f"{subscription or 'unnamed'} to handle all")


async def empty(cluster: VirtualCluster) -> None:
    await until(lambda: cluster.waiting() == 0, 30.0, "the streams to be empty")


def test_subscription_gets_all_that_is_put_after_its_creation() -> None:
    """K10: and nothing of what was put before; both handle each message once, and then the streams are empty."""

    async def main(cluster: VirtualCluster, producer: Producer) -> None:
        before = await put(cluster, producer, "before")
        await cluster.create("audit")
        after = await put(cluster, producer, "after")
        await cluster.start("a1", subscription="audit")
        await reach(cluster, "audit", after)
        await reach(cluster, "", before | after)
        await empty(cluster)
        assert sorted(cluster.handled["audit"]) == sorted(after)
        assert sorted(cluster.handled[""]) == sorted(before | after)

    run(main)


def test_subscription_that_is_gone_for_a_while_misses_nothing() -> None:
    """K10, L: nor does the unnamed one. Owners come and go in both meanwhile."""

    async def main(cluster: VirtualCluster, producer: Producer) -> None:
        await cluster.create("audit")
        first = await cluster.start("a1", subscription="audit")
        one = await put(cluster, producer, "one")
        await reach(cluster, "audit", one)
        await cluster.stop(first)
        two = await put(cluster, producer, "two", 500)
        await reach(cluster, "", one | two)
        other = await cluster.start("n2")
        three = await put(cluster, producer, "three")
        await cluster.stop(cluster.nodes[0])
        await reach(cluster, "", three)
        await cluster.start("a2", subscription="audit")
        await reach(cluster, "audit", one | two | three)
        await empty(cluster)
        assert other in cluster.nodes
        assert len(cluster.handled["audit"]) == len(one | two | three)

    run(main)


def test_subscription_that_nobody_owned_when_another_was_created() -> None:
    """K10: a partition without an owner at the creation, whose next owner removes what it has handled."""

    async def main(cluster: VirtualCluster, producer: Producer) -> None:
        await cluster.stop(cluster.nodes[0])
        await cluster.create("audit")
        ids = await put(cluster, producer, "one")
        await cluster.start("n2")
        await reach(cluster, "", ids)
        await cluster.start("a1", subscription="audit")
        await reach(cluster, "audit", ids)
        await empty(cluster)

    run(main)


def test_deletion_frees_what_only_it_held() -> None:
    """K10: it is refused while nodes work for it; then nothing of it is left, and the unnamed one goes on."""

    async def main(cluster: VirtualCluster, producer: Producer) -> None:
        await cluster.create("audit")
        node = await cluster.start("a1", subscription="audit")
        with pytest.raises(
            EvenlaneError, match="subscription 'audit' of environment 'online' is in use: node a1 works"
        ):
            await cluster.delete("audit")
        await cluster.stop(node)
        ids = await put(cluster, producer, "one")
        await reach(cluster, "", ids)
        assert cluster.waiting() == len(ids)
        await cluster.delete("audit")
        await empty(cluster)
        await reach(cluster, "", await put(cluster, producer, "two"))
        await empty(cluster)
        client = cluster.coordination()
        for prefix in ("/evenlane/online/subscription", "/evenlane/online/seen/"):
            await until(lambda prefix=prefix: _is_gone(client, prefix), 10.0, f"{prefix} to be gone")  # type: ignore[misc]
        assert not [name for name in cluster.server.list_streams() if "audit" in name]

    run(main)


async def _is_gone(client: Any, prefix: str) -> bool:
    return not (await client.list(prefix)).items
