"""A node of `rebalance`, `delay` or `live`: `evenlane run` as a process of its own, which dies with this one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from datetime import datetime
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.scenarios.cluster_records import SERVICE, VARIABLE
from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.child import GUARD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NODE = "from evenlane.engine.cli.main import main; main()"
_HANDLER = "evenlane.engine.proof.scenarios.cluster_handler:handle"
_READY_S = 60.0
_LAST_WORDS = 300  # characters
_SECOND = 1_000_000_000


class CaughtUp(NamedTuple):
    """A node has fed what a partition held when it took it over; `at` in ns since boot."""

    at: int
    partition: int
    messages: int


class NodeProcess:
    """`settings` are Evenlane's, as `EVENLANE_*`. It logs to `<folder>/<name>.log`, and what its handlers do to
    `records/<name>`, which take `service_s` each. `program` is what runs as the node.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        records: Path,
        settings: Mapping[str, object],
        *,
        service_s: float,
        program: str,
    ) -> None:
        self.name, self._log, self._program = name, folder / f"{name}.log", program
        given = {**settings, "node": name, "log_format": "json", "log_level": "info"}
        own = {key: value for key, value in os.environ.items() if not key.startswith("EVENLANE_")}
        self._environ = own | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            VARIABLE: str(records / name),
            SERVICE: str(service_s),
            **{f"EVENLANE_{key.upper()}": str(value) for key, value in given.items()},
        }
        self._process: asyncio.subprocess.Process | None = None
        self.told_to_end = False

    async def spawn(self) -> None:
        guard = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()))
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *guard, sys.executable, "-P", "-c", self._program, "run", "--handler", _HANDLER,
                env=self._environ, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    async def ready(self) -> None:
        """Raises EvenlaneError."""
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                if await self._process.stdout.readline():
                    return
        raise EvenlaneError(f"the scenario broke off: {self.name} didn't get ready; it last said: {self.last_words()}")

    async def leave(self) -> None:
        """By SIGTERM, which it is to end well by. Raises EvenlaneError."""
        if (status := await self._ended_by(signal.SIGTERM)) != 0:
            raise EvenlaneError(f"the scenario broke off: {self.name} ended {child.how(status)} after SIGTERM")

    async def kill(self) -> None:
        await self._ended_by(signal.SIGKILL)

    async def _ended_by(self, number: signal.Signals) -> int:
        """Its exit status."""
        assert self._process is not None
        self.told_to_end = True
        self._process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """Its exit status, once it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self) -> None:
        """Kill it, unless it has ended or never began."""
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    def caught_up(self) -> list[CaughtUp]:
        """What its log says of backlogs so far."""
        return list(caught_up(self._lines(), now_ns() - time_ns()))

    def _lines(self) -> list[bytes]:
        return self._log.read_bytes().splitlines() if self._log.exists() else []

    @property
    def memory(self) -> int:
        """Bytes that the process holds in memory now, as the kernel counts them."""
        assert self._process is not None
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def last_words(self) -> str:
        return b" | ".join(self._lines()[-3:]).decode(errors="replace")[-_LAST_WORDS:] or "nothing"


def caught_up(lines: list[bytes], offset: int) -> Iterator[CaughtUp]:
    """From a log in JSON; `offset` is what has to be added to unix ns to get ns since boot."""
    for line in lines:
        if b'"caught up"' in line:
            told = msgspec.json.decode(line)
            at = round(datetime.fromisoformat(told["timestamp"]).timestamp() * _SECOND)
            yield CaughtUp(at + offset, told["partition"], told["messages"])
