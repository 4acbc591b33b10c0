"""The token of `evenlane up`: who may read this file may change something by HTTP."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "http-token"


def http_token(data_dir: Path) -> Path:
    """The file, made if it isn't there; says on stderr where it is. Raises ConfigError."""
    path = (data_dir / _NAME).absolute()
    try:
        if not path.exists():
            _write(path)
        path.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"the token for changes by HTTP can't be written to {path}: {error.strerror}") from error
    print(f"the token for changes by HTTP is in {path}", file=sys.stderr)  # noqa: T201
    return path


def _write(path: Path) -> None:
    """Whole or not at all, and never readable by others."""
    from secrets import token_urlsafe

    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{token_urlsafe(32)}\n")
    fresh.replace(path)
