import pytest

from evenlane.engine.base.log_setup import setup
from tests.ledger.world import ProcessWorld


@pytest.fixture
async def world(tmp_path):
    """Servers for each test: most tests stop or kill theirs. A busy machine loses a lease of 2 s now and then, so only
    tests that wait for the end of one have it so short.
    """
    async with ProcessWorld(tmp_path, lease_ttl=10) as world:
        yield world


@pytest.fixture
def quiet():
    """No log of this process: a transcript shows only the output of commands and nodes."""
    setup("console", "error")
