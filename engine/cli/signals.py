"""Runs work that a signal ends like Ctrl-C: in order, and with its messages."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


async def run_until_signal(work: Coroutine[Any, Any, T], *numbers: signal.Signals) -> T:
    """Return the result of `work`. The first of these signals cancels `work`; then Exit is raised, with 128 + the
    signal's number.

    An ignored signal stays ignored: `nohup` ignores SIGHUP.
    """
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    came: list[int] = []

    def end(number: int) -> None:
        if not came:  # a second signal must not interrupt the orderly end
            task.cancel()
        came.append(number)

    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if came:
            raise typer.Exit(128 + came[0]) from None
        raise
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)
