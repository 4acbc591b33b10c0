"""Waits for a condition that has no event: `until` in asyncio, `poll` in synchronous tests."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

Value = TypeVar("Value")

_PAUSE_S, _MAX_PAUSE_S = 0.01, 0.1  # a pause is as long as the check before it took, within these bounds,
_LONG_PAUSE_S, _CHECKS = 0.05, 20  # or a twentieth of the wait so far, up to 0.05 s: a long wait needs few checks


async def until(condition: Callable[[], Value | Awaitable[Value]], timeout: float = 60.0, what: str = "") -> Value:
    """Call `condition` (which may be async) until its result is true, and return that result.

    Fails after `timeout` seconds, even during a call. The failure names `what` was awaited.
    """
    last: object = "no answer"
    try:
        async with asyncio.timeout(timeout) as limit:
            clock = asyncio.get_running_loop().time
            began = clock()
            while True:
                asked = clock()
                answer = condition()
                last = await answer if inspect.isawaitable(answer) else answer
                if last:
                    return cast("Value", last)
                now = clock()
                long_pause = min((now - began) / _CHECKS, _LONG_PAUSE_S)
                await asyncio.sleep(min(max(_PAUSE_S, long_pause, now - asked), _MAX_PAUSE_S))
    except TimeoutError:
        if not limit.expired():
            raise
        name = what or getattr(condition, "__name__", repr(condition))
        raise AssertionError(f"waited {timeout:g} s in vain for {name}; the last answer: {last!r}") from None


def poll(condition: Callable[[], Value], timeout: float, *, pause_s: float = 0.05) -> Value:
    """Call `condition` until its result is true, at most for `timeout` seconds, and return its last result."""
    end = time.monotonic() + timeout
    while not (last := condition()) and time.monotonic() < end:
        time.sleep(pause_s)
    return last
