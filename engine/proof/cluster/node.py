"""A node of a cluster: `evenlane run` as a separate process, which dies with this one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from datetime import datetime
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.broker.child import spawn_python
from evenlane.engine.proof.cluster.records import SERVICE, VARIABLE
from evenlane.engine.runtime.embedded import child

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NODE = "from evenlane.engine.cli.main import main; main()"
_HANDLER = "evenlane.engine.proof.cluster.node_program:handle"
_READY_S = 60.0
_LAST_WORDS = 300  # characters
_SECOND = 1_000_000_000


class CatchUpEnd(NamedTuple):
    """The moment (`at`, ns since boot) at which a node has fed the backlog of a partition that it took over."""

    at: int
    partition: int
    messages: int


class NodeProcess:
    """`settings` are Evenlane's, as `EVENLANE_*`. The node logs to `<folder>/<name>.log`, and its handlers, which take
    `service_s` each, write their records to `<records>/<name>`. `program` is the Python code that runs as the node.
    """

    def __init__(
        self, name: str, folder: Path, records: Path, settings: Mapping[str, object], *, service_s: float, program: str
    ) -> None:
        self.name, self._log, self._program = name, folder / f"{name}.log", program
        given = {**settings, "node": name, "log_format": "json", "log_level": "info"}
        own = {key: value for key, value in os.environ.items() if not key.startswith("EVENLANE_")}
        self._environ = own | {
            VARIABLE: str(records / name),
            SERVICE: str(service_s),
            **{f"EVENLANE_{key.upper()}": str(value) for key, value in given.items()},
        }
        self._process: asyncio.subprocess.Process | None = None
        self.is_ending = False

    async def spawn(self) -> None:
        with self._log.open("ab") as log:
            self._process = await spawn_python(
                "-c", self._program, "run", "--handler", _HANDLER,
                env=self._environ, stdin=DEVNULL, stdout=PIPE, stderr=log,
            )  # fmt: skip

    async def ready(self) -> None:
        """Raises EvenlaneError."""
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                if await self._process.stdout.readline():
                    return
        raise EvenlaneError(
            f"the scenario was aborted: {self.name} did not become ready; its last output was: {self.last_words()}"
        )

    async def leave(self) -> None:
        """End the process by SIGTERM. Raises EvenlaneError unless its exit code is 0."""
        if (status := await self._end_by(signal.SIGTERM)) != 0:
            raise EvenlaneError(
                f"the scenario was aborted: {self.name} ended {child.describe_exit(status)} after SIGTERM"
            )

    async def kill(self) -> None:
        await self._end_by(signal.SIGKILL)

    async def _end_by(self, number: signal.Signals) -> int:
        """Its exit status."""
        assert self._process is not None
        self.is_ending = True
        self._process.send_signal(number)
        return await self.wait_for_end()

    async def wait_for_end(self) -> int:
        """Wait for its exit status."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self) -> None:
        """Kill the process, unless it has ended or never began."""
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    def caught_up(self) -> list[CatchUpEnd]:
        """The backlogs that it has fed so far, from its log."""
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


def caught_up(lines: list[bytes], offset: int) -> Iterator[CatchUpEnd]:
    """Read the ends of catch-ups from a log in JSON. `offset` converts unix ns to ns since boot."""
    for line in lines:
        if b'"caught up"' in line:
            event = msgspec.json.decode(line)
            at = round(datetime.fromisoformat(event["timestamp"]).timestamp() * _SECOND)
            yield CatchUpEnd(at + offset, event["partition"], event["messages"])
