"""An environment in memory, without nodes."""

import pytest

from tests.support.subscription_world import SubscriptionWorld


@pytest.fixture
async def world():
    made = SubscriptionWorld()
    await made.open()
    yield made
    await made.close()
