"""Tests in virtual time, for which a busy machine would be too slow: time passes when no task is ready."""

import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from random import Random
from typing import Any

import structlog

from tests.simulation import surroundings
from tests.simulation.loop import SimLoop

_LEAST_S = 1.1e-9  # more than a nanosecond, as floats are inexact


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on the simulation's event loop and clock. It can't use fixtures with a loop of their own, so it must
    make what it needs. Its time is that of its loop, also for modules of the product that import `monotonic`.
    """

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        run_virtually(lambda _loop: test(*given, **named))

    return run


def run_virtually(main: Callable[[SimLoop], Coroutine[Any, Any, None]], *, keep: Collection[str] = ()) -> None:
    """Run `main(loop)` in virtual time. Modules of the product that are named in `keep` keep their constants."""
    failures: list[object] = []
    loop = _Loop(Random(1), lambda what, error: failures.append(error or what))
    given_time = surroundings.of(1, lambda: loop.now, _pass_on, quiet=True)
    with surroundings.replaced(keep), given_time, _monotonic(loop.time):
        loop.run(main(loop))
    assert [] == failures


def _pass_on(level: str, event: str, fields: dict[str, Any]) -> None:
    """Errors of the product, for `structlog.testing.capture_logs`."""
    getattr(structlog.get_logger(), level)(event, **fields)


class _Loop(SimLoop):
    """Each of its timers takes at least a nanosecond: a wait for a rate might else take 0 s for ever. A function for a
    thread runs at once, and takes no virtual time.
    """

    def run_in_executor(self, executor, func, *args):
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            done.set_exception(error)
        return done

    def call_later(self, delay, callback, *args, context=None):
        return super().call_later(max(delay, _LEAST_S), callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        return super().call_at(max(when, self.time() + _LEAST_S), callback, *args, context=context)


@contextmanager
def _monotonic(read: Callable[[], float]) -> Iterator[None]:
    """Give this clock to all loaded modules of the product that have imported `time.monotonic`."""
    modules = [module for name, module in sys.modules.items() if name.startswith("evenlane.")]
    replaced = [module for module in modules if vars(module).get("monotonic") is time.monotonic]
    for module in replaced:
        vars(module)["monotonic"] = read
    try:
        yield
    finally:
        for module in replaced:
            vars(module)["monotonic"] = time.monotonic
