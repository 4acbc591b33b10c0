"""The processes of the platform on one machine: servers, nodes and gateways, each started by its usual command."""

import asyncio
import itertools
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from evenlane import EvenlaneError

_READY_S = 60.0
_END_S = 40.0
_EVENLANE = Path(sys.executable).with_name("evenlane")
_APP = "examples.iot.handlers:app"


class Part:
    """A process of the platform. Its log is `<folder>/<name>.log`, and its id is in `<folder>/<name>.pid`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name, self.process, self.log = name, process, log
        self.ready_line = ""
        self._printing: asyncio.Task[None] | None = None
        self._is_ending = False

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    async def ready(self) -> None:
        """Return once it has printed that it is ready; print its further lines from then on. Raises EvenlaneError."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(_READY_S):
                while not self.ready_line.startswith("ready"):
                    line = await self.process.stdout.readline()
                    if not line:
                        raise EvenlaneError(f"{self.name} ended at its start: {self._last_words()}")
                    self.ready_line = line.decode().strip()
        except TimeoutError:
            raise EvenlaneError(f"{self.name} wasn't ready within {_READY_S:g} s: see {self.log}") from None
        self._printing = asyncio.create_task(self._print())

    async def kill(self) -> None:
        """End it by SIGKILL, as a crash would."""
        self._is_ending = True
        if self.is_running:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> None:
        """End it in order, or by SIGKILL if that takes too long."""
        self._is_ending = True
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.process.wait(), _END_S)
            except TimeoutError:
                await self.kill()

    async def _print(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            print(line.decode(), end="", flush=True)
        code = await self.process.wait()
        if not self._is_ending:
            print(f"{self.name} has ended, with exit code {code}: see {self.log}", flush=True)

    def _last_words(self) -> str:
        return (self.log.read_text(errors="replace").splitlines() or ["it printed nothing"])[-1]


@dataclass(frozen=True)
class Ports:
    """The ports of the servers; None means any free one."""

    nats: int | None = None
    etcd: int | None = None
    mqtt: int | None = None


class Platform:
    """`async with Platform(folder, ports) as platform`: all its processes end with the block. `prefix` goes before each
    command.
    """

    def __init__(
        self,
        folder: Path,
        ports: Ports,
        *,
        nodes: int = 2,
        gateways: int = 2,
        lease_ttl: str = "5s",
        prefix: Sequence[str] = (),
    ) -> None:
        self.folder, self._ports, self._prefix = folder, ports, prefix
        self._count_nodes, self._count_gateways, self._lease_ttl = nodes, gateways, lease_ttl
        self._node_numbers, self._gateway_numbers = itertools.count(1), itertools.count(1)
        self.environ: dict[str, str] = {}
        self.database = folder / "iot.db"
        self.servers: Part | None = None
        self.nodes: list[Part] = []
        self.gateways: list[Part] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def add_node(self) -> Part:
        """Start another node."""
        name = f"node-{next(self._node_numbers)}"
        command = ("run", "--handler", _APP, "--node", name, "--lease-ttl", self._lease_ttl)
        part = await self._spawn(name, str(_EVENLANE), *command)
        self.nodes.append(part)
        await part.ready()
        return part

    async def add_gateway(self) -> Part:
        """Start another gateway."""
        name = f"gateway-{next(self._gateway_numbers)}"
        part = await self._spawn(name, sys.executable, "-m", "examples.iot", "gateway", "--name", name)
        self.gateways.append(part)
        await part.ready()
        return part

    async def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        given = {"nats": self._ports.nats, "etcd": self._ports.etcd, "mqtt": self._ports.mqtt or _free_port()}
        flags = [word for name, port in given.items() if port is not None for word in (f"--{name}-port", str(port))]
        self.servers = await self._spawn("servers", str(_EVENLANE), "up", "--data-dir", str(self.folder), *flags)
        await self.servers.ready()
        found = dict(word.split("=", 1) for word in self.servers.ready_line.split()[1:])
        self.environ = {
            "EVENLANE_NATS": found["nats"],
            "EVENLANE_ETCD": found["etcd"],
            "IOT_MQTT": found["mqtt"],
            "IOT_DATABASE": str(self.database.absolute()),
        }
        await asyncio.gather(
            *(self.add_node() for _ in range(self._count_nodes)),
            *(self.add_gateway() for _ in range(self._count_gateways)),
        )

    async def _stop(self) -> None:
        await asyncio.gather(*(part.stop() for part in self.gateways + self.nodes))
        if self.servers is not None:
            await self.servers.stop()

    async def _spawn(self, name: str, *command: str) -> Part:
        path = self.folder / f"{name}.log"
        with path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._prefix,
                *command,
                env=os.environ | self.environ,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C on the terminal ends this program alone, and this program the others
            )
        path.with_suffix(".pid").write_text(f"{process.pid}\n")
        return Part(name, process, path)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
