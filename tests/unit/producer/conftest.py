import pytest

from tests.support.putting import World


@pytest.fixture
async def world():
    made = World()
    await made.store.open()
    yield made
    await made.store.close()
