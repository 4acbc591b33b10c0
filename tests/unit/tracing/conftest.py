import pytest

from tests.support.spans import Spans


@pytest.fixture
def spans():
    return Spans()
