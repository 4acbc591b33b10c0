"""The addresses and credentials of NATS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import tls

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True)
class NatsOptions:
    """Addresses and credentials of NATS. `monitor` has monitoring addresses; `connect_timeout` is in seconds."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    creds_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    monitor: tuple[str, ...] = ()
    inbox: str = "_INBOX"  # the first words of reply subjects
    connect_timeout: float = 5.0

    def login(self) -> dict[str, Any]:
        """The login options for nats-py. Raises ConfigError."""
        found: dict[str, Any] = {}
        if self.user:
            found |= {"user": self.user, "password": self.password or ""}
        if self.creds_file:
            from evenlane.engine.store.jetstream.client import creds  # noqa: PLC0415 - imports libsodium, which few need

            found["user_credentials"] = creds.check_path(self.creds_file)
        if (context := self.tls()) is not None:
            found["tls"] = context
        return found

    def tls(self) -> ssl.SSLContext | None:
        """None if the servers are trusted as the system does. Raises ConfigError."""
        return tls.context("nats", self.ca, self.cert, self.key)
