"""The addresses and credentials of NATS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


@dataclass(frozen=True)
class NatsOptions:
    """Addresses and credentials of NATS. `monitor` has monitoring addresses; `connect_timeout` is in seconds."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str | None = None
    password: str | Callable[[], str | None] | None = field(default=None, repr=False)  # may be read at each login
    creds_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    monitor: tuple[str, ...] = ()
    inbox: str = "_INBOX"  # the first words of reply subjects
    connect_timeout: float = 5.0

    def login(self) -> dict[str, Any]:
        """The login options for nats-py, which reads files again at each login. Raises ConfigError."""
        found: dict[str, Any] = {}
        if self.user:
            self.read_password()
            found |= {"user": self.user, "password": self.read_password}
        if self.creds_file:
            from evenlane.engine.store.jetstream.client import creds  # noqa: PLC0415 - imports libsodium, which few need

            found["user_credentials"] = creds.check_path(self.creds_file)
        if (context := self.tls()) is not None:
            found["tls"] = context
        return found

    def read_password(self) -> str:
        """Raises ConfigError."""
        password = self.password() if callable(self.password) else self.password
        return password or ""

    def tls(self) -> ssl.SSLContext | None:
        """The context of the files as they are now; None without any. Raises ConfigError."""
        return tls.context("nats", self.ca, self.cert, self.key)
