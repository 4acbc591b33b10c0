"""Lifecycle of one embedded server: lock, port, process, readiness, end."""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from evenlane.engine.errors import ConfigError, PortUnavailable, Unreachable
from evenlane.engine.runtime.embedded import child, logs, ports

# Generous, for slow machines and busy disks: an idle machine needs 0.5 s.
_PROBE_WITHIN = 2.0  # s
_PORT_ATTEMPTS = 5


class _PortTakenError(Exception):
    """The server found its port taken although it was free a moment before."""


class Server(ABC):
    """A server with its data, log and lock under `data_dir`: `<kind>/`, `<kind>.log`, `<kind>.lock`.

    With `port` None, a free port is chosen at the first start and kept from then on. After `stop`, `kill` or a crash,
    the server can be started again, on the same port and data. Start it from the main thread; stop it or wait for it in
    any event loop.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    ready_within_s = 30.0
    stop_within_s = 10.0  # after this it is killed
    lock_within_s = child.LOCK_WITHIN_S
    orphan_signal: ClassVar[signal.Signals] = signal.SIGKILL  # sent to the server when this process dies

    def __init__(self, data_dir: Path | str, *, port: int | None = None) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.log_path = self.data_dir / f"{self.kind}.log"
        # Passed to the server and expected in its answer, as another server might have won the race for the port.
        self.name = f"evenlane-{secrets.token_hex(4)}"
        self._store = self.data_dir / self.kind
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @abstractmethod
    def _command(self) -> list[str]:
        """Return program and arguments for the present port."""

    @abstractmethod
    async def _is_answering(self) -> bool:
        """Try once whether this very server answers. OSError, EOFError and ValueError mean no."""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError(f"{self.title} has no port before its first start")
        return self._port

    @property
    def pid(self) -> int:
        return self._get_process().pid

    async def start(self) -> None:
        """Start, and return once the server answers.

        Raises PortUnavailable, DataInUse, ConfigError (the data directory can't be used, or the server refused to
        start) or Unreachable (it runs but doesn't answer within `ready_within_s`). The server is then not left running.
        """
        if self.is_running:
            raise RuntimeError(f"{self.title} is already running")
        if sys.platform != "linux":
            raise ConfigError(
                "embedded servers need Linux: use --nats and --etcd with servers that are already running"
            )
        try:
            self._store.mkdir(parents=True, exist_ok=True, mode=0o700)
            await (self._start_on_own_port() if self._port is not None else self._start_on_free_port())
        except OSError as error:
            raise ConfigError(
                f"data directory {self.data_dir} can't be used: {error.strerror} ({error.filename}): "
                "choose another --data-dir"
            ) from None

    async def stop(self) -> None:
        """End the server in order, and kill it if it still runs after `stop_within_s`. No effect before the start and
        after the end.
        """
        if not self.is_running:
            return
        process = self._get_process()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)  # a server under SIGSTOP doesn't receive SIGTERM
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.stop_within_s):
                    await child.wait_for_exit(process)
        finally:
            _kill(process)

    async def kill(self) -> None:
        """End the server by SIGKILL, as a crash would. It is gone and reaped on return."""
        if self.is_running:
            process = self._get_process()
            process.kill()
            await child.wait_for_exit(process)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def wait(self) -> int:
        """Wait until the present process ends; return its exit status, or minus the signal's number."""
        return await child.wait_for_exit(self._get_process())

    def last_words(self) -> str:
        """Return the most informative log line of the present or last run about its end, and the log's path."""
        return f"{logs.last_words(logs.since(self.log_path, self._log_start))} ({self.log_path})"

    def _get_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.title} was not started")
        return self._process

    async def _start_on_own_port(self) -> None:
        flag = f"--{self.kind}-port"
        ports.check_port(self.port, flag)
        try:
            await self._launch()
        except _PortTakenError:
            ports.check_port(self.port, flag)
            raise PortUnavailable(f"{self.title} couldn't listen: {self.last_words()}") from None

    async def _start_on_free_port(self) -> None:
        for _ in range(_PORT_ATTEMPTS):
            self._port = ports.free_port()
            with contextlib.suppress(_PortTakenError):
                return await self._launch()
        self._port = None
        raise PortUnavailable(f"{self.title} found {_PORT_ATTEMPTS} free ports taken: {self.last_words()}")

    async def _launch(self) -> None:
        held = await child.lock(self.data_dir / f"{self.kind}.lock", user=self.title, within_s=self.lock_within_s)
        try:
            self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
            process = child.spawn(
                self._command(), folder=self.data_dir, log=self.log_path, keep=held, orphan_signal=self.orphan_signal
            )
        finally:
            os.close(held)  # the server holds it now
        self._process = process
        try:
            await self._ready(process)
        except BaseException:
            _kill(process)
            raise

    async def _ready(self, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.ready_within_s
        while process.poll() is None:
            if await self._probe():
                return
            if loop.time() >= deadline:
                raise Unreachable(
                    f"{self.title} didn't answer within {self.ready_within_s:g} s; its last output was:"
                    f" {self.last_words()}"
                )
            await asyncio.sleep(0.02)
        if logs.PORT_TAKEN in logs.since(self.log_path, self._log_start):
            raise _PortTakenError
        raise ConfigError(
            f"{self.title} ended at its start {child.describe_exit(process.returncode)};"
            f" its last output was: {self.last_words()}"
        )

    async def _probe(self) -> bool:
        try:
            # before Python 3.12 wait_for may swallow a cancellation
            async with asyncio.timeout(_PROBE_WITHIN):
                return await self._is_answering()
        except (OSError, EOFError, ValueError, TimeoutError):
            return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process without await, so that no cancellation interferes; the kernel needs milliseconds for it."""
    process.kill()
    process.wait()
