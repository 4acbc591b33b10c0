"""Names the author of a change, for the history of its topic."""

from __future__ import annotations

import getpass
import os
import socket

from evenlane.engine.control.topics.history import MOST_TEXT
from evenlane.engine.errors import ConfigError


def current_author(by: str | None, named: str = "--by") -> str:
    """Return the named author, or this process's user on this host. Raises ConfigError; `named` is the argument."""
    if by is not None:
        return _check_author(by, named)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # containers may have users without a name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _check_author(by: str, named: str) -> str:
    if not isinstance(by, str):
        raise ConfigError(f"{named} must be text, not {type(by).__name__}")
    if not 0 < len(by) <= MOST_TEXT:
        raise ConfigError(f"{named} must have 1 to {MOST_TEXT} characters, not {len(by):,}")
    if not by.isprintable():
        raise ConfigError(f"{named} must be printable text on one line")
    return by
