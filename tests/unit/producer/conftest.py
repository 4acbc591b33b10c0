import pytest

from tests.support.producer_world import ProducerWorld
from tests.unit.producer.observed_store import ObservedStore


@pytest.fixture
async def world():
    made = ProducerWorld()
    made.store = ObservedStore(made.server, made.env)
    await made.store.open()
    yield made
    await made.store.close()
