"""Carries out blocking calls in threads of their own."""

import _thread
import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(call: Callable[[], T]) -> "asyncio.Future[T]":
    """Carry out a blocking call in a thread of its own. Cancelling the future ends the wait, not the call.

    The thread isn't one of a pool, because Python waits for a pool's threads at exit: one that waits for a dead thread
    of gRPC would keep the process from ending. Nor is it a `threading.Thread`, whose `start` waits for ever if the new
    thread dies before its first line, and would block the event loop. Raises RuntimeError if no thread can be started.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(deliver: Callable[[], None]) -> None:
        if not answer.done():  # else nobody waits any more
            deliver()

    def carry_out() -> None:
        deliver: Callable[[], None]
        try:
            deliver = partial(answer.set_result, call())
        except BaseException as error:  # noqa: BLE001 - the future carries it to the caller
            deliver = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(settle, deliver)

    _thread.start_new_thread(carry_out, ())
    return answer
