import pytest

from tests.support.cluster import Cluster
from tests.support.replays import Place


@pytest.fixture
async def cluster():
    async with Cluster() as made:
        yield made


@pytest.fixture
async def place():
    async with Place() as made:
        yield made
