import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.ring.coordination.memory.client import MemoryCoordination


@pytest.fixture
def coordination():
    return MemoryCoordination()


@pytest.fixture
def client(coordination):
    """The controller's own client of etcd."""
    return coordination.peer()


@pytest.fixture
async def controller(client):
    made = TopicController(client, "online", ClusterConfig(), "one")
    yield made
    await made.close()
