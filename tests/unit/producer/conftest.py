from contextlib import asynccontextmanager

import pytest

from tests.support.producer_world import ProducerWorld
from tests.unit.producer.observed_store import ObservedStore


@asynccontextmanager
async def opened_world():
    made = ProducerWorld()
    made.store = ObservedStore(made.server, made.env)
    await made.store.open()
    yield made
    await made.store.close()


@pytest.fixture
async def world():
    async with opened_world() as made:
        yield made
