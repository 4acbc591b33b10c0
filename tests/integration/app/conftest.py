"""An environment with topics, on the servers that all tests share."""

import itertools

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.control.topics.client import TopicClient

_fresh = itertools.count()


@pytest.fixture
async def settings(nats_server, etcd_server):
    made = Settings(
        nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=f"app{next(_fresh)}", partitions=2, storage="memory"
    )
    coordination = connections.etcd(made)
    cluster_config = await agree_cluster_config(coordination, made.env, {"partitions": 2})
    topics = TopicClient(coordination, made.env, cluster_config)
    for project in ("orders-1", "mail", "other"):
        await topics.change(project, {"qps": 100})
    await coordination.close()
    return made
