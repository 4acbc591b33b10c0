"""Reads the certificate of the HTTP server and its key, again whenever one of the files has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import tls
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

_log = structlog.get_logger(__name__)


class Certificate:
    """The certificate of a server. `context` serves each new connection with the files as they are then: with their
    last valid state, if somebody replaces them one after the other. Raises ConfigError for files that aren't valid.

    Invariants: `_stamp` is the state of the files when they were last read; `_valid` was made of them when they were
    last valid.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert, self._key = cert, key
        self._stamp = self._look()
        self.context = self._valid = self._read()
        # OpenSSL calls it for each client, also for one that names no host.
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _host: str | None, _context: ssl.SSLContext) -> None:
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._valid = self._read()
            except ConfigError as error:
                _log.warning("the certificate of HTTP is not valid: the last valid one counts", reason=str(error))
        connection.context = self._valid

    def _look(self) -> tuple[object, ...]:
        return tuple(map(_stamp, (self._cert, self._key)))

    def _read(self) -> ssl.SSLContext:
        return tls.server_context("http", str(self._cert), str(self._key))


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
