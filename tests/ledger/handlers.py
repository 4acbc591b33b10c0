"""Handlers of the nodes in these tests. Each writes its begins and ends to the ledger: see entries.py."""

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

_FAILS = 20  # one attempt in 20 fails
_HOPELESS = 200  # all attempts of one message in 200 fail


def fails(message: str, attempt: int) -> bool:
    """About one attempt in twenty, the same ones in each run and each process."""
    return _share(f"{message}/{attempt}", _FAILS) or _share(message, _HOPELESS)


def _share(text: str, one_in: int) -> bool:
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big") % one_in == 0


@cache
def _ledger() -> int:
    return os.open(entries.path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(message: "Message", what: str) -> None:
    """Append a line with a single write, which the kernel does completely or not at all."""
    digest = sha256(message.body).hexdigest()[:16]
    line = (
        f"{now_ns()}\t{os.getpid()}\t{what}\t{message.project}\t{message.id}\t{message.attempt}\t"
        f"{message.stream}\t{message.sequence}\t{message.epoch}\t{message.priority}\t{digest}\t{message.chosen}\n"
    )
    os.write(_ledger(), line.encode())


async def write(message: "Message") -> None:
    """Only note the message."""
    note(message, "ok")


async def flaky(message: "Message") -> None:
    """Fail where `fails` says so."""
    bad = fails(message.id, message.attempt)
    note(message, "fail" if bad else "ok")
    if bad:
        raise RuntimeError("one attempt in twenty fails")


UNEASY_TEXT = "one first attempt in six fails"
UNEASY = f"RuntimeError: {UNEASY_TEXT}"


async def uneasy(message: "Message") -> None:
    """Fail at a sixth of all first attempts, and read all fields of the message."""
    reported = message.attempt, message.put_at, message.due_at, message.key, message.headers, repr(message)
    bad = reported[0] <= 1 and _share(f"{message.stream}-{message.sequence}", 6)
    note(message, "fail" if bad else "ok")
    if bad:
        raise RuntimeError(UNEASY_TEXT)


async def obey(message: "Message") -> None:
    """Do what the header `order` says: see `_order`."""
    note(message, "begin")
    try:
        for word, argument in _order(message):
            if word == "sleep":
                await asyncio.sleep(argument)
            elif word == "alive":
                await _alive(message, argument)
            elif word == "held":
                await _held()
                await asyncio.sleep(argument)
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
    """A fallback. It fails, or blocks the event loop, where the header `fallback` says so."""
    if message.headers.get("fallback") == "block":
        time.sleep(600)
    if message.headers.get("fallback") == "fail":
        note(message, "gave in")
        raise RuntimeError("the fallback fails as ordered")
    note(message, "gave up")


@cache
def _child() -> "subprocess.Popen[bytes]":
    code = "import time; time.sleep(300)"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)


async def obey_with_a_child(message: "Message") -> None:
    """Obey, and keep a child process of the handler, which outlives the node."""
    _child()
    await obey(message)


def obey_in_thread(message: "Message") -> None:
    """Obey as a plain function, which the node runs in a thread."""
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
    """The order as a word and its number: `sleep S`, `alive S` (with signs of life), `hang`, `fail N` (the first N
    attempts), `stubborn` (fail until `forgive`), `held S` (run until S after it), `retry S`, `reject`, `die` (end the
    process after success is noted), `exit` and `crash` (end it before), `block S` (sleep in the event loop).

    With `first` before it, only in the first attempt; with `once`, only the first time at all.
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
    """From now on, `stubborn` messages succeed, and `held` ones end."""
    ledger.with_name("forgiven").touch()


def _forgiven() -> Path:
    return entries.path().with_name("forgiven")


def first_time(message: "Message") -> bool:
    """Whether this is the first question about the message, in any process."""
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
    if word == "die":  # between success and settlement, the worst moment to be killed
        note(message, "ok")
        os._exit(7)
