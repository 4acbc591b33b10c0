"""`evenlane top` without an answer of any node."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cli.top.source import RemoteSource
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import NodeRecord, encode
from tests.unit.admin.overview.test_client import Line


async def test_silent_node_is_named_with_its_troubles():
    """F1: a node with a blocked loop can't answer; its record in etcd names the blocking line."""
    etcd = MemoryCoordination()
    await agree_cluster_config(etcd, "online", {"partitions": 4})
    blocked = NodeRecord(host="h", at=1.0, troubles={"blocked": "has been blocked for 12 s by jobs.py:41"})
    await etcd.put(names.key("online", "nodes", "a"), encode(blocked))
    source = RemoteSource(Settings(env="online"), etcd, Line(), "somebody", timeout_s=0.01)
    with pytest.raises(EvenlaneError) as error:
        await source.overview()
    first, _, trouble = str(error.value).partition("; ")
    assert first.endswith("from the only node of environment 'online': only nodes know the backlogs")
    assert "node a has been blocked for 12 s by jobs.py:41" == trouble
    await etcd.put(names.key("online", "nodes", "a"), encode(NodeRecord(host="h", at=1.0)))
    with pytest.raises(EvenlaneError, match=r"only nodes know the backlogs$"):
        await source.overview()
