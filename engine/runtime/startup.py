"""Waits at startup for a server that doesn't answer yet, as all parts of a site may start in any order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from evenlane.engine.core.ports import Lost
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.ring.coordination.ports import CoordinationError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


T = TypeVar("T")

_PAUSE_S = 0.25
_AGAIN_S = 5.0
_SILENCE = (Unavailable, Unreachable, Lost)


async def wait_until_answered(
    probe: Callable[[], Awaitable[T]],
    wait_s: float,
    on_wait: Callable[[str], None],
    *,
    pause_s: float = _PAUSE_S,
    again_s: float = _AGAIN_S,
) -> T:
    """Return the result of `probe` once it doesn't fail with silence (Unavailable, Unreachable or Lost).

    `probe` is called at least once, and again for `wait_s` seconds; each call must start from scratch. `on_wait` gets
    one line when the wait begins, and one every `again_s` seconds. Raises Unreachable after that time, and
    EvenlaneError at once if the server answers with a refusal: waiting doesn't fix a wrong password.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    deadline = start + wait_s
    next_notice_at = start
    reason = ""
    while True:
        try:
            async with asyncio.timeout_at(deadline if reason else None):
                return await probe()
        except (CoordinationError, *_SILENCE) as error:
            reason = _no_answer_text(error)
        except TimeoutError:
            if not reason:
                raise
        if loop.time() + pause_s >= deadline:
            raise Unreachable(f"{reason}; waited {wait_s:g} s for it (start_timeout)" if wait_s else reason)
        if loop.time() >= next_notice_at:
            on_wait(f"{reason}; waiting for it, {deadline - loop.time():.0f} s more")
            next_notice_at = loop.time() + again_s
        await asyncio.sleep(pause_s)


def _no_answer_text(error: Exception) -> str:
    """Return why there is no answer. Raises EvenlaneError for an error that was an answer."""
    if isinstance(error, _SILENCE):
        return str(error)
    raise EvenlaneError(str(error)) from error
