"""Fixtures of tests that push."""

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.node.push.client import PushTuning
from evenlane.engine.node.push.pusher import Pusher
from tests.support.push.receiver import receiving


@pytest.fixture
async def receiver():
    async with receiving() as made:
        yield made


@pytest.fixture
async def pusher(request, tmp_path):
    """The pusher of a node that may push to this machine; its parameter is the tuning."""
    tuning = getattr(request, "param", PushTuning())
    made = Pusher(Settings(push_private=True, push_secrets=tmp_path), tuning)
    yield made
    await made.close()
