import pytest

from tests.support.store.harness import JetStreamHarness


@pytest.fixture
async def world(nats_server):
    made = await JetStreamHarness(nats_server).open()
    yield made
    await made.close()
