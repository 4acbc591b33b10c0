"""The topics of an environment: specs in etcd, and the topic controller that accepts them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.ring.coordination.ports import PutKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.ring.coordination.ports import Coordination

_AT_ONCE = 100  # keys in a transaction; etcd takes 128
_TIMEOUT_S = 60.0


@asynccontextmanager
async def accept_topics(
    coordination: Coordination, env: str, cluster_config: ClusterConfig, specs: Mapping[str, bytes]
) -> AsyncIterator[TopicCache]:
    """The topics of these specs, by project, accepted as a leader would. Raises CoordinationError, UnknownProject."""
    agreed = await agree_cluster_config(coordination, env, asdict(cluster_config))
    controller, cache = TopicController(coordination, env, agreed, env), TopicCache(coordination, env)
    try:
        await controller.start()
        await cache.start()
        puts = [PutKey(names.key(env, "topics", project), spec) for project, spec in specs.items()]
        for start in range(0, len(puts), _AT_ONCE):
            await coordination.txn([], puts[start : start + _AT_ONCE])
        for project in specs:
            await cache.wait_for(project, _TIMEOUT_S)
        await controller.close()
        yield cache
    finally:
        await controller.close()
        await cache.close()
