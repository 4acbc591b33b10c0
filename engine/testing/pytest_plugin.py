"""The plugin for pytest, which loads it by its entry point in every run: nothing heavy is imported before a test uses
the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evenlane.engine.testing.test_app import TestApp


@pytest.fixture
def evenlane_app() -> Iterator[Callable[..., TestApp]]:
    """The class `TestApp` with a safety net: if the test doesn't end an app, the clock is restored all the same.

    async with evenlane_app(app, topics={"acme": {"qps": 100}}) as t: ...
    """
    from evenlane.engine.testing.test_app import TestApp  # noqa: PLC0415 - see above

    made: list[TestApp] = []

    def make(app: Any, **options: Any) -> TestApp:
        made.append(TestApp(app, **options))
        return made[-1]

    yield make
    for each in made:
        each.abandon()
