"""HTTP options of the nodes of one command: a port each, from `http_port` on; and the token of `evenlane up`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from evenlane.engine.cli.run.lifeline import NodeReady

_LAST = 65_535
_FILE_NAME = "http-token"


def http_ports(first: int | None, count: int) -> Sequence[int]:
    """Return ports for `count` nodes: none if `first` is None, any free ones if it is 0. Raises ConfigError."""
    if not first:
        return [] if first is None else [0] * count
    if first + count - 1 > _LAST:
        raise ConfigError(
            f"--http-port {first} leaves no port for each of {count} processes: {_LAST - count + 1} is the highest"
        )
    return range(first, first + count)


def addresses(ready: Iterable[NodeReady]) -> str:
    """Return the addresses served, as the end of the ready line."""
    served = ",".join(each.http for each in ready if each.http is not None)
    return f" http={served}" if served else ""


def http_token(data_dir: Path) -> Path:
    """Return the file with the token, created if missing, and print its path to stderr. Anyone who can read the file
    has write access by HTTP. Raises ConfigError.
    """
    path = (data_dir / _FILE_NAME).absolute()
    try:
        if not path.exists():
            _write(path)
        path.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"the token for changes by HTTP can't be written to {path}: {error.strerror}") from error
    print(f"the token for changes by HTTP is in {path}", file=sys.stderr)  # noqa: T201
    return path


def _write(path: Path) -> None:
    """Write the file entirely or not at all, never readable by others."""
    from secrets import token_urlsafe

    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{token_urlsafe(32)}\n")
    fresh.replace(path)
