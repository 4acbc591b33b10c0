"""Runs a node in its process, from its start until a signal ends it in order."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Protocol

from evenlane.engine.runtime.process_end import interrupt, leave_at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.runtime.engine import Engine


class ProgressIndicator(Protocol):
    """A progress indicator, shown from `start` to `stop`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


async def serve(
    engine: Engine,
    joined: Callable[[], None] | None = None,
    draining: ProgressIndicator | None = None,
    on_stop: Callable[[], None] | None = None,
) -> bool:
    """Run a node until SIGTERM or SIGINT; return whether it ended clean. `joined` is called after it connects, and
    `on_stop` at the signal. A second signal ends the process at once.
    """
    entering = asyncio.create_task(engine.__aenter__())

    def stop() -> None:
        if on_stop is not None:
            on_stop()
        engine.stop()
        if draining is not None:
            draining.start()
        entering.cancel()  # no effect once it is done; before, it may wait for etcd

    last = [draining.stop] if draining is not None else []
    on_signals(stop, lambda number: leave_at_once(number, *last))
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


def on_signals(stop: Callable[[], object], again: Callable[[int], object] = interrupt) -> None:
    """Call `stop` in the loop at the first SIGTERM or SIGINT, and `again` with the signal's number at each further one,
    even if a handler blocks the loop.

    The first signal reaches the loop in two ways: by a handler of signals, which runs while the loop is blocked, and by
    the loop's own file descriptor, which works even if a handler of messages has replaced that handler.
    """
    loop = asyncio.get_running_loop()
    signals = stops = 0

    def stop_once() -> None:
        nonlocal stops
        stops += 1
        if stops == 1:
            stop()

    def on_signal(number: int, _frame: object) -> None:
        nonlocal signals
        signals += 1
        if signals > 1 or loop.is_closed():
            again(number)
        else:
            loop.call_soon_threadsafe(stop_once)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_once)
        signal.signal(number, on_signal)
