"""What holds for all tests."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_as_at_the_start() -> Iterator[None]:
    """A test that runs a command in this process sets its logs up, and a level above what the next test looks for."""
    yield
    structlog.reset_defaults()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The simulation first: its tests are long, and at the end one worker would run them while the others have none."""
    items.sort(key=lambda item: "simulation" not in item.path.parts)
