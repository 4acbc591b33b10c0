import pytest

from tests.support.http.api_world import ApiWorld


@pytest.fixture
async def world():
    async with ApiWorld().serve() as made:
        yield made
