import pytest

from evenlane.engine.push.pusher import Pusher
from evenlane.engine.settings import Settings
from tests.engine.push.receiver import receiving


@pytest.fixture
async def receiver():
    async with receiving() as made:
        yield made


@pytest.fixture
async def pusher(tmp_path):
    """Of a node that may push to this machine."""
    made = Pusher(Settings(push_private=True, push_secrets=tmp_path))
    yield made
    await made.close()
