"""Runs work that a signal ends like Ctrl-C: in order, and with its messages."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from evenlane.engine.base.config.settings import Settings

T = TypeVar("T")
Client = TypeVar("Client")


def run_with_client(
    settings: Settings,
    opened: Callable[[Settings], AbstractAsyncContextManager[Client]],
    work: Callable[[Client], Awaitable[T]],
) -> T:
    """Run `work` with an open client, until SIGTERM or SIGHUP, after logging is set up."""
    from evenlane.engine.base.log_setup import setup
    from evenlane.engine.runtime.run_loop import run_loop

    setup(settings.log_format, settings.log_level)

    async def ask() -> T:
        async with opened(settings) as client:
            return await work(client)

    found: T = run_loop(run_until_signal(ask(), signal.SIGTERM, signal.SIGHUP))
    return found


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
