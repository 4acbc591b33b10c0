"""The leader repairs corrupted keys under `accepted/` of a real etcd (fault row 19)."""

import asyncio
import contextlib

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import Unavailable
from tests.support.until import until

ROOT = "/evenlane/online/"


@pytest.mark.real
async def test_leader_repairs_corrupted_topics_across_crash_of_etcd(tmp_path):
    """Row 19: also when the leader's connection is lost meanwhile. Nodes keep their topics, and new nodes get them."""
    server = EtcdServer(tmp_path)  # with fsync: otherwise it loses acknowledged writes when it is killed
    await server.start()
    # Hundreds of synced writes at once take long on a busy machine.
    editor, leading, reading, fresh = (EtcdCoordination([server.endpoint], deadline_s=30.0) for _ in range(4))
    topic_cache, late = TopicCache(reading, "online"), TopicCache(fresh, "online")
    controller = TopicController(leading, "online", ClusterConfig(), "n1", last_good=topic_cache.get)
    try:
        await topic_cache.start()
        await controller.start()
        for n in range(300):
            await editor.put(f"{ROOT}topics/p{n}", b'{"qps": 5}')
        await until(lambda: len(topic_cache.all()) == 300)
        seen = []
        topic_cache.on_change.append(lambda project, now: seen.append((project, now)))
        good = {item.key: item.value for item in (await editor.list(ROOT + "accepted/")).items}
        await asyncio.gather(*(editor.put(f"{ROOT}accepted/p{n}", b"rubbish") for n in range(300)))

        async def corrupted():
            """The corrupted keys, so that a failure shows them."""
            now = {item.key: item.value for item in (await editor.list(ROOT + "accepted/")).items}
            return {key: now.get(key) for key in good if now.get(key) != good[key]}

        async def repaired():
            return not await corrupted()

        await until(repaired)
        await server.kill()
        await server.start()
        await until(lambda: _corrupt_one(editor))
        with contextlib.suppress(AssertionError):
            await until(repaired, timeout=60.0)  # the leader's key may be free only once its lease has ended
        assert {} == await corrupted()
        await late.start()
        assert (300, [], 300) == (len(topic_cache.all()), seen, len(late.all()))
    finally:
        await asyncio.gather(topic_cache.close(), late.close(), controller.close())
        await asyncio.gather(*(client.close() for client in (editor, leading, reading, fresh)))
        await server.stop()


async def _corrupt_one(editor):
    try:
        return await editor.put(f"{ROOT}accepted/p7", b"rubbish")
    except Unavailable:
        return 0
