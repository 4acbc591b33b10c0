"""Reads the file of tokens with scopes (docs/how-to/secure.md), again whenever it has changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.base.config.toml_file import read_toml
from evenlane.engine.errors import ConfigError
from evenlane.engine.http.server.scopes import Grant, Scope, check_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_log = structlog.get_logger(__name__)

_SETTING = "http_tokens_file"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST = 1_000  # tokens: each request is compared with all of them


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str
    scopes: list[Scope]
    projects: list[str] | None = None


class TokenFile:
    """The tokens of a file; none without a file.

    Invariants: `_stamp` is the state of the file when it was last read; `_grants` are those of the file when it was
    last valid, None before that.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, ...] = ()
        self._grants: Sequence[Grant] | None = None

    def grants(self) -> Sequence[Grant]:
        """Return what each token is for. If the file has become invalid, the last valid one counts, as a mistake in the
        entry of one client must not lock out the others. Raises ConfigError for a file that has never been valid, and
        for one that is gone.
        """
        if self._path is None:
            return ()
        try:
            found = self._path.stat()
        except OSError as error:
            raise ConfigError(f"{_SETTING}: {self._path} can't be read: {error.strerror}") from error
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if self._grants is None or stamp != self._stamp:
            raw = _read(self._path)
            try:
                self._grants = _parse(self._path, raw)
            except ConfigError as error:
                if self._grants is None:
                    raise
                _log.warning("the file of tokens is not valid: the last valid one counts", reason=str(error))
            self._stamp = stamp
        return self._grants


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{_SETTING}: {path} can't be read: {error.strerror}") from error


def _parse(path: Path, raw: bytes) -> Sequence[Grant]:
    grants = [_grant(path, name, fields) for name, fields in read_toml(f"{_SETTING}: {path}", raw).items()]
    if len(grants) > _MOST:
        raise ConfigError(f"{_SETTING}: {path} has {len(grants):,} tokens, and {_MOST:,} are the most")
    return grants


def _grant(path: Path, name: str, fields: object) -> Grant:
    where = f"{_SETTING}: token {name!r} in {path}"
    try:
        entry = msgspec.convert(fields, _Entry)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where} is not valid: {error}") from None
    if not _DIGEST.fullmatch(entry.sha256):
        raise ConfigError(f"{where}: sha256 must be 64 lower-case hexadecimal digits, as `evenlane token` prints them")
    if not entry.scopes:
        raise ConfigError(f"{where} has no scopes: they are {', '.join(Scope)}")
    for pattern in entry.projects or ():
        try:
            check_pattern(pattern)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
    if entry.projects == []:
        raise ConfigError(f"{where} is for no projects: leave `projects` out for all")
    projects = None if entry.projects is None else tuple(entry.projects)
    return Grant(name, bytes.fromhex(entry.sha256), frozenset(entry.scopes), projects)
