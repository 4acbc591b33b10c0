"""Runs the command `evenlane` in a process that is forked from one with all imports done.

Imports take a second of CPU time per process, and the tests start hundreds of nodes. Apart from that, the process is
like one started from a shell: it has its own environment, stdout, stderr and exit code, and no threads of its parent.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
from typing import TYPE_CHECKING

from evenlane.engine.runtime.embedded.guard import PR_SET_PDEATHSIG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

_IMPORTED = (
    "evenlane.engine.cli.main",
    "evenlane.engine.cli.run.command",
    "evenlane.engine.runtime.engine",
    "evenlane.engine.cluster.connections",
    "evenlane.engine.store.jetstream.backend",
    "evenlane.engine.base.log_setup",
    "evenlane.engine.cli.run.lifeline",
    "evenlane.engine.cli.run.http_options",
    "evenlane.engine.cli.run.readiness",
    "evenlane.engine.runtime.watchdog",
    "evenlane.engine.cli.progress",
    "evenlane.engine.runtime.run_loop",
    "evenlane.engine.cli.topics.group",
    "evenlane.engine.producer.producer",
    "pydantic.type_adapter",
    "tests.ledger.handlers",
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*_IMPORTED, "tests.ledger.frozen"])


class Forked:
    def __init__(self, process: ForkServerProcess, stdout: asyncio.StreamReader) -> None:
        self._process, self.stdout = process, stdout
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._on_end)

    @classmethod
    async def started(cls, arguments: Sequence[str], environ: Mapping[str, str], stderr: Path) -> Forked:
        """`evenlane ARGUMENT...`, which adds to the file `stderr`."""
        stderr.touch()  # a reader may open it before the process does
        ours, theirs = _context.Pipe(duplex=False)
        given = list(arguments), dict(environ), theirs, str(stderr)
        process = _context.Process(target=_evenlane, args=given, daemon=True)  # (else the tests' end waits for it)
        with theirs:
            process.start()
        with ours:
            pipe = os.fdopen(os.dup(ours.fileno()), "rb")
        stdout = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), pipe)
        return cls(process, stdout)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def send_signal(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Its exit code, or -N if signal N ended it."""
        await self._ended.wait()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self._ended.set()


def _evenlane(arguments: list[str], environ: dict[str, str], stdout: Connection, stderr: str) -> None:
    """Run the command in the new process."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # (its parent ends with the tests)
    os.environ.clear()
    os.environ.update(environ)
    os.dup2(stdout.fileno(), 1)
    log = os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 2)
    os.close(log)
    stdout.close()
    if "LD_PRELOAD" in environ:  # (only a new program gets it)
        main = "from evenlane.engine.cli.main import main; main()"
        os.execve(sys.executable, [sys.executable, "-c", main, *arguments], dict(environ))
    sys.argv = ["evenlane", *arguments]
    importlib.import_module("evenlane.engine.cli.main").main()
