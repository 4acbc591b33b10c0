"""Checks a NATS credentials file: a user's JWT and the seed of its key, as written by `nsc`."""

from __future__ import annotations

import re
from pathlib import Path

import nkeys

from evenlane.engine.errors import ConfigError

_PART = rb"-----BEGIN %b-----\s*(\S+)\s*------?END %b------?"
_JWT, _SEED = (re.compile(_PART % (name, name)) for name in (b"NATS USER JWT", b"USER NKEY SEED"))


def check_path(path: str) -> str:
    """The path, checked; nats-py reads the file itself at each login. Raises ConfigError."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"nats_creds_file: {path} can't be read: {error.strerror}") from error
    seed = _SEED.search(text)
    if seed is None or _JWT.search(text) is None or not _is_seed(seed[1]):
        raise ConfigError(f"nats_creds_file: {path} contains no NATS credentials: a user's JWT and the seed of its key")
    return path


def _is_seed(seed: bytes) -> bool:
    try:
        nkeys.from_seed(bytearray(seed)).wipe()
    except (nkeys.NkeysError, ValueError):
        return False
    return True
