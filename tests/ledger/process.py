"""A node as a process: `evenlane run` with a handler of these tests."""

import asyncio
import os
import re
import signal
from pathlib import Path

from evenlane.engine.runtime.embedded.pair import Servers
from tests.ledger import entries
from tests.ledger.forked import Forked
from tests.support import ROOT
from tests.support.wrong_clock import ahead_of_time

_READY_S = 60.0


class NodeProcess:
    """A node. `settings` become `EVENLANE_*` variables. The log is `<folder>/<name>.log`. With `processes`, the process
    is the supervisor of N nodes. `ahead_s` is how much its clock of the time of day is ahead.
    """

    def __init__(
        self,
        servers: Servers,
        folder: Path,
        handler: str,
        *,
        name: str = "node-a",
        fallback: str = "",
        processes: int = 0,
        ahead_s: int = 0,
        **settings: object,
    ) -> None:
        self._servers, self._handler, self._fallback, self.name = servers, handler, fallback, name
        self._processes, self._ahead_s = processes, ahead_s
        self._settings = {"log_level": "debug", "log_format": "console", "lease_ttl": 2} | settings
        self.ledger = folder / "ledger"
        self.log = folder / f"{name}.log"
        self._process: Forked | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    async def start(self) -> str:
        """Start it, and return its line on stdout once it serves or is on standby."""
        await self.spawn()
        return await self.ready()

    async def spawn(self) -> None:
        """Start the process. It can't outlive the tests."""
        handler = self._handler if ":" in self._handler else f"handlers:{self._handler}"
        arguments = ["run", "--handler", f"tests.ledger.{handler}"]
        arguments += ["--fallback", f"tests.ledger.handlers:{self._fallback}"] if self._fallback else []
        arguments += ["--processes", str(self._processes)] if self._processes else []
        self._process = await Forked.started(arguments, self._environment(), self.log)

    async def ready(self, within_s: float = _READY_S) -> str:
        assert self._process is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), within_s)
        if not line:
            raise AssertionError(f"the node ended at its start: {self.last_words()}")
        return line.decode().strip()

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.send(signal.SIGKILL)
        await self.ended()

    async def stop(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.send(signal.SIGTERM)
        return await self.ended()

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "nothing"

    def logged(self, text: str) -> int:
        """The number of lines in its log that contain `text`."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return sum(text in line for line in lines)

    def raised(self) -> set[str]:
        """The errors of all tracebacks in its log, handlers' own ones included."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return set(re.findall(r"^Traceback .*\n(?:[ \t].*\n)*(.*)$", text, re.MULTILINE))

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
        given = {
            "nats": self._servers.nats.url, "etcd": self._servers.etcd.endpoint, "node": self.name,
        } | self._settings  # fmt: skip
        return own | {
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
            entries.VARIABLE: str(self.ledger),
            **{f"EVENLANE_{key.upper()}": str(value) for key, value in given.items()},
            **(ahead_of_time(self._ahead_s) if self._ahead_s else {}),
        }
