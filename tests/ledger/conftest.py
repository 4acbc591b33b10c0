import pytest

from tests.ledger.world import World


@pytest.fixture
async def world(tmp_path):
    """Servers of its own for each test: most of them lose theirs."""
    async with World(tmp_path) as world:
        yield world
