"""`pytest tests/engine/scheduler --rewrite` writes the scenario files anew."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--rewrite", action="store_true", help="write down what the scheduler does in its scenario files")


@pytest.fixture
def rewrite(request):
    return request.config.getoption("--rewrite", default=False)
