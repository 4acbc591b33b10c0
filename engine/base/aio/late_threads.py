"""Threads that an event loop may use while the interpreter waits for its last threads."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class LateThreads(ThreadPoolExecutor):
    """A daemon thread for each call. A pool's own threads refuse work once the main thread has ended, and a loop can't
    look up a host's name then, although other threads go on.
    """

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        work = partial(call, *args, **more)
        threading.Thread(target=_complete, args=(future, work), name="evenlane call", daemon=True).start()
        return future


def _complete(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        future.set_exception(error)
    else:
        future.set_result(result)
