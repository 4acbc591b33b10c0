"""What several tests of the engine stand on."""

import pytest

from tests.engine.cluster import Cluster
from tests.engine.letters import Place


@pytest.fixture
async def cluster():
    async with Cluster() as made:
        yield made


@pytest.fixture
async def place():
    async with Place() as made:
        yield made
