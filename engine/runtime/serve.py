"""Runs a node in its process, from its start until a signal ends it in order."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.runtime.engine import Engine


class ProgressIndicator(Protocol):
    """A progress indicator, shown from `start` to `stop`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


async def serve(
    engine: Engine, joined: Callable[[], None] | None = None, draining: ProgressIndicator | None = None
) -> bool:
    """Run a node until SIGTERM or SIGINT; return whether it ended clean. `joined` is called after it connects."""
    entering = asyncio.create_task(engine.__aenter__())

    def stop() -> None:
        engine.stop()
        if draining is not None:
            draining.start()
        entering.cancel()  # no effect once it is done; before, it may wait for etcd

    on_signals(stop)
    try:
        await asyncio.wait({entering})
        if entering.cancelled():
            return True
        entering.result()
        try:
            if joined is not None:
                joined()
            return await engine.run()
        finally:
            await engine.__aexit__()
    finally:
        if draining is not None:
            draining.stop()


def on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT. A second SIGTERM has no effect; a second SIGINT interrupts, even if a
    handler blocks the loop.
    """
    loop = asyncio.get_running_loop()
    stopping = interrupted = False

    def once() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            stop()

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal interrupted
        if stopping or interrupted or loop.is_closed():
            raise KeyboardInterrupt
        interrupted = True
        loop.call_soon_threadsafe(once)

    loop.add_signal_handler(signal.SIGTERM, once)
    signal.signal(signal.SIGINT, interrupt)
