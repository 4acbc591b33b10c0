"""What holds for all tests."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The simulation first: its tests are long, and at the end one worker would run them while the others have none."""
    items.sort(key=lambda item: "simulation" not in item.path.parts)
