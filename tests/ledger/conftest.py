import pytest

from evenlane.engine.base.log_setup import setup
from tests.ledger.world import ProcessWorld


@pytest.fixture
async def world(tmp_path):
    """Servers for each test: most tests stop or kill theirs."""
    async with ProcessWorld(tmp_path) as world:
        yield world


@pytest.fixture
def quiet():
    """No log of this process: a transcript shows only the output of commands and nodes."""
    setup("console", "error")
