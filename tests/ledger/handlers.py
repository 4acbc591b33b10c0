"""The handlers that the nodes of these tests run. Each writes what it did to the ledger: see entries.py."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from evenlane import Reject, Retry
from evenlane.engine.base.clock import now_ns
from tests.ledger import entries

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message

_FAILS = 20  # one attempt in so many
_HOPELESS = 200  # of one message in so many every attempt does


def fails(message: str, attempt: int) -> bool:
    """About one attempt in twenty, the same ones in each run and each process."""
    return _share(f"{message}/{attempt}", _FAILS) or _share(message, _HOPELESS)


def _share(text: str, one_in: int) -> bool:
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big") % one_in == 0


@cache
def _ledger() -> int:
    return os.open(entries.path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(message: "Message", what: str) -> None:
    """One write, appended by the kernel: whole or not at all, whoever else writes and whatever comes next."""
    digest = sha256(message.body).hexdigest()[:16]
    line = (
        f"{now_ns()}\t{os.getpid()}\t{what}\t{message.project}\t{message.id}\t{message.attempt}\t"
        f"{message.stream}\t{message.sequence}\t{message.epoch}\t{message.priority}\t{digest}\t{message.chosen}\n"
    )
    os.write(_ledger(), line.encode())


async def write(message: "Message") -> None:
    """Note it, and no more."""
    note(message, "ok")


async def flaky(message: "Message") -> None:
    """Fails where `fails` says so."""
    bad = fails(message.id, message.attempt)
    note(message, "fail" if bad else "ok")
    if bad:
        raise RuntimeError("one attempt in twenty fails")


async def uneasy(message: "Message") -> None:
    """Fails at a sixth of all first attempts, and looks at all that a message says."""
    reported = message.attempt, message.put_at, message.due_at, message.key, message.headers, repr(message)
    bad = reported[0] <= 1 and _share(f"{message.stream}-{message.sequence}", 6)
    note(message, "fail" if bad else "ok")
    if bad:
        raise RuntimeError("one first attempt in six fails")


async def obey(message: "Message") -> None:
    """Do what the header `order` says: see `Orders`."""
    note(message, "begin")
    try:
        for word, argument in _order(message):
            if word == "sleep":
                await asyncio.sleep(argument)
            elif word == "alive":
                await _alive(message, argument)
            elif word == "held":
                await _held()
            else:
                _do(message, word, argument)
    except asyncio.CancelledError:
        note(message, "cancelled")
        raise
    except (RuntimeError, Retry, Reject):
        note(message, "fail")
        raise
    note(message, "ok")


async def give_up(message: "Message") -> None:
    """A fallback; it fails, or blocks the event loop, where the header `fallback` says so."""
    if message.headers.get("fallback") == "block":
        time.sleep(600)
    if message.headers.get("fallback") == "fail":
        note(message, "gave in")
        raise RuntimeError("the fallback fails as ordered")
    note(message, "gave up")


@cache
def _child() -> "subprocess.Popen[bytes]":
    code = "import time; time.sleep(100)"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)


async def obey_with_a_child(message: "Message") -> None:
    """The same, beside a process of the handler's own, which outlives the node."""
    _child()
    await obey(message)


def obey_in_thread(message: "Message") -> None:
    """The same for a plain function, which the node runs in a thread."""
    note(message, "begin")
    for word, argument in _order(message):
        if word == "sleep":
            time.sleep(argument)
        elif word == "alive":
            for _ in range(int(argument * 20)):
                time.sleep(0.05)
                message.in_progress()
        else:
            _do(message, word, argument)
    note(message, "ok")


def _order(message: "Message") -> list[tuple[str, float]]:
    """`sleep S`, `alive S` (with signs of life), `hang`, `fail N` (the first N attempts), `stubborn` (fail until
    `forgive`), `held` (run until then), `retry S`, `reject`, `die` (end the process after success is noted), `exit` and
    `crash` (end it before), `block S` (sleep in the event loop).
    `first ...`: only in the first attempt; `once ...`: only the first time at all.
    """
    words = message.headers.get("order", "").split()
    if words[:1] == ["first"]:
        words = words[1:] if message.attempt == 1 else []
    elif words[:1] == ["once"]:
        words = words[1:] if first_time(message) else []
    if words == ["hang"]:
        words = ["sleep", "3600"]
    return [(words[0], float(words[1]) if len(words) > 1 else 0.0)] if words else []


def forgive(ledger: Path) -> None:
    """From now on what is `stubborn` succeeds, and what is `held` ends."""
    ledger.with_name("forgiven").touch()


def _forgiven() -> Path:
    return entries.path().with_name("forgiven")


def first_time(message: "Message") -> bool:
    """Whether no process has asked for this message before."""
    flag = entries.path().with_name(f"once-{message.id}")
    known = flag.exists()
    flag.touch()
    return not known


async def _held() -> None:
    while not _forgiven().exists():
        await asyncio.sleep(0.05)


async def _alive(message: "Message", seconds: float) -> None:
    for _ in range(int(seconds * 20)):
        await asyncio.sleep(0.05)
        await message.in_progress()


def _do(message: "Message", word: str, argument: float) -> None:
    if word == "fail" and message.attempt <= argument:
        raise RuntimeError(f"attempt {message.attempt} fails as ordered")
    if word == "stubborn" and not _forgiven().exists():
        raise RuntimeError("it isn't forgiven")
    if word == "retry":
        raise Retry(after=argument)
    if word == "reject":
        raise Reject("as ordered")
    if word == "block":
        time.sleep(argument)
    if word == "exit":
        os._exit(9)
    if word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "die":  # between success and settle, as a process that is killed at the worst moment
        note(message, "ok")
        os._exit(7)
