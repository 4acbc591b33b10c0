import pytest

from tests.ledger.world import ProcessWorld


@pytest.fixture
async def world(tmp_path):
    """Servers of its own for each test: most of them lose theirs."""
    async with ProcessWorld(tmp_path) as world:
        yield world
