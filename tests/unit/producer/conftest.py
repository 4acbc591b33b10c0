import pytest

from tests.support.producer_world import ProducerWorld


@pytest.fixture
async def world():
    made = ProducerWorld()
    await made.store.open()
    yield made
    await made.store.close()
