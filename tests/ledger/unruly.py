"""A handler that harms its process: see `ORDERS`. It notes its begins and ends like the others."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.ledger import entries
from tests.ledger.handlers import first_time, note

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message

_ROOM = 64 << 20  # bytes
_SPARE = 256 << 20


async def unruly(message: "Message") -> None:
    """Do what the header `order` says, in the loop; with `once` before it, only the first time."""
    note(message, "begin")
    order, own = message.headers.get("order", "nothing"), os.getpid()
    if order.startswith("once "):
        order = order.removeprefix("once ") if first_time(message) else "nothing"
    await ORDERS[order](message)
    if os.getpid() == own:
        note(message, "ok")


async def _nothing(_message: "Message") -> None:
    """Succeed."""


# ---- orders that the process survives


async def _exit_in_thread(_message: "Message") -> None:
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()


async def _recursion(message: "Message") -> None:
    await _recursion(message)


async def _memory(_message: "Message") -> None:
    """Allocate until the limit."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + _SPARE, before[1]))
    held = []
    try:
        while True:
            held.append(bytes(_ROOM))
    finally:
        held.clear()
        resource.setrlimit(resource.RLIMIT_AS, before)


async def _handler_of_the_loop(_message: "Message") -> None:
    def bad(*_: object) -> None:
        raise SystemExit("the loop's exception handler")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(bad)
    leaving = loop.create_task(_raise(ValueError("never retrieved")))
    await asyncio.sleep(0)
    del leaving


async def _signals(_message: "Message") -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)


async def _task(message: "Message") -> None:
    """Leave two tasks behind: one fails, the other never ends."""
    _keep(_raise(RuntimeError("left behind")))
    _keep(asyncio.sleep(3600))


async def _fork(message: "Message") -> None:
    """Fork a child that returns to the node."""
    child = os.fork()
    note(message, "parent" if child else "child")
    if child:
        await asyncio.sleep(0.2)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


async def _fork_in_thread(message: "Message") -> None:
    await asyncio.to_thread(lambda: os.fork() or os._exit(0))


async def _block(_message: "Message") -> None:
    time.sleep(3600)


def _raises(error: Callable[[], BaseException]) -> Callable[["Message"], Awaitable[None]]:
    async def order(_message: "Message") -> None:
        raise error()

    return order


# ---- orders that the process dies of


async def _close_files(_message: "Message") -> None:
    os.closerange(3, 4096)
    await asyncio.sleep(3600)


async def _exit_in_task(message: "Message") -> None:
    _keep(_raise(SystemExit(0)))
    await asyncio.sleep(3600)


async def _exit_in_drain(message: "Message") -> None:
    """Exit once the test has asked the process to end, and says so."""
    while not entries.path().with_name("forgiven").exists():
        await asyncio.sleep(0.02)
    await _exit_in_task(message)


async def _default_interrupt(_message: "Message") -> None:
    """Restore Python's own handler of Ctrl-C, and raise."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise KeyboardInterrupt


async def _exit_zero(_message: "Message") -> None:
    os._exit(0)


async def _interrupt_in_task(message: "Message") -> None:
    _keep(_raise(KeyboardInterrupt()))
    await asyncio.sleep(3600)


async def _cancel_all(_message: "Message") -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(3600)


async def _stop_the_loop(_message: "Message") -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(3600)


_kept: list[object] = []


def _keep(work: object) -> None:
    """Start a task that is never awaited."""
    _kept.append(asyncio.ensure_future(work))  # type: ignore[call-overload]


async def _raise(error: BaseException) -> None:
    raise error


ORDERS = {
    "nothing": _nothing, "exit in thread": _exit_in_thread, "recursion": _recursion, "memory": _memory,
    "loop's handler": _handler_of_the_loop, "signals": _signals, "task": _task, "fork": _fork,
    "fork in thread": _fork_in_thread, "block": _block, "close files": _close_files, "exit in task": _exit_in_task,
    "exit in drain": _exit_in_drain, "default interrupt": _default_interrupt, "exit zero": _exit_zero,
    "raise GeneratorExit": _raises(GeneratorExit), "raise KeyboardInterrupt": _raises(KeyboardInterrupt),
    "raise SystemExit": _raises(SystemExit), "raise StopAsyncIteration": _raises(StopAsyncIteration),
    "raise group": _raises(lambda: BaseExceptionGroup("all", [GeneratorExit(), KeyboardInterrupt()])),
    "interrupt in task": _interrupt_in_task, "cancel all": _cancel_all, "stop the loop": _stop_the_loop,
}  # fmt: skip


def hangs(message: "Message") -> None:
    """Hang in a thread."""
    note(message, "begin")
    time.sleep(3600)


def forks_in_thread(message: "Message") -> None:
    """Fork, in a thread, a child that returns to the thread."""
    own = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    note(message, "ok" if os.getpid() == own else "child")
