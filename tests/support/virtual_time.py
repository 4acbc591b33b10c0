"""Tests in virtual time, for what a busy machine would be too late for: a second passes when nobody is ready."""

from collections.abc import Callable, Coroutine
from functools import wraps
from random import Random
from typing import Any

from tests.simulation import surroundings
from tests.simulation.loop import SimLoop


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run it on the simulation's event loop and clock. Fixtures with a loop of their own can't be used in it: what has
    to be there it makes itself. Its time is that of its loop.
    """

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        failures: list[object] = []
        loop = SimLoop(Random(1), lambda what, error: failures.append(error or what))
        with surroundings.replaced(), surroundings.of(1, lambda: loop.now, lambda *_: None, quiet=True):
            loop.run(test(*given, **named))
        assert [] == failures

    return run
