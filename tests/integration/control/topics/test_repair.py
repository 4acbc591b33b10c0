"""What somebody else spoils under `accepted/` of a real etcd, the leader repairs (fault row 19)."""

import asyncio
import contextlib

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.support.until import until

ROOT = "/evenlane/online/"


@pytest.mark.real
async def test_on_a_real_etcd_nodes_go_on_and_new_ones_learn_it(tmp_path):
    """Row 19, with the leader's connection lost on the way."""
    server = EtcdServer(tmp_path)  # that syncs: else it forgets, when it is killed, what it said it had
    await server.start()
    hand, leading, reading, fresh = (EtcdCoordination([server.endpoint]) for _ in range(4))
    topic_cache, late = TopicCache(reading, "online"), TopicCache(fresh, "online")
    controller = TopicController(leading, "online", ClusterConfig(), "n1", last_good=topic_cache.get)
    try:
        await topic_cache.start()
        await controller.start()
        for n in range(300):
            await hand.put(f"{ROOT}topics/p{n}", b'{"qps": 5}')
        await until(lambda: len(topic_cache.all()) == 300, timeout=10.0)
        seen = []
        topic_cache.on_change.append(lambda project, now: seen.append((project, now)))
        good = {item.key: item.value for item in (await hand.list(ROOT + "accepted/")).items}
        await asyncio.gather(*(hand.put(f"{ROOT}accepted/p{n}", b"rubbish") for n in range(300)))

        async def spoilt():
            """Which are, so that a failure tells."""
            now = {item.key: item.value for item in (await hand.list(ROOT + "accepted/")).items}
            return {key: now.get(key) for key in good if now.get(key) != good[key]}

        async def mended():
            return not await spoilt()

        await until(mended, timeout=10.0)
        await server.kill()
        await server.start()
        await until(lambda: _spoilt(hand), timeout=20.0)
        with contextlib.suppress(AssertionError):
            await until(mended, timeout=60.0)  # the lead may be free only when its lease has ended
        assert {} == await spoilt()
        await late.start()
        assert (300, [], 300) == (len(topic_cache.all()), seen, len(late.all()))
    finally:
        await asyncio.gather(topic_cache.close(), late.close(), controller.close())
        await asyncio.gather(*(client.close() for client in (hand, leading, reading, fresh)))
        await server.stop()


async def _spoilt(hand):
    from evenlane.ring.coordination.ports import Unavailable

    try:
        return await hand.put(f"{ROOT}accepted/p7", b"rubbish")
    except Unavailable:
        return 0
