"""Tests in virtual time, for which a busy machine would be too slow: time passes when no task is ready."""

from collections.abc import Callable, Coroutine
from functools import wraps
from random import Random
from typing import Any

from tests.simulation import surroundings
from tests.simulation.loop import SimLoop


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on the simulation's event loop and clock. It can't use fixtures with a loop of their own, so it must
    make what it needs. Its time is that of its loop.
    """

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        failures: list[object] = []
        loop = SimLoop(Random(1), lambda what, error: failures.append(error or what))
        with surroundings.replaced(), surroundings.of(1, lambda: loop.now, lambda *_: None, quiet=True):
            loop.run(test(*given, **named))
        assert [] == failures

    return run
