import pytest

from tests.support.dead_letter_world import DeadLetterWorld
from tests.support.membership_cluster import MembershipCluster


@pytest.fixture
async def cluster():
    async with MembershipCluster() as made:
        yield made


@pytest.fixture
async def place():
    async with DeadLetterWorld() as made:
        yield made
