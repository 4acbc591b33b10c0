"""Reads secrets from files. They are read whenever a secret is used, so that a new one counts without a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_TOKEN_CHARACTERS = 16


def read(key: str, path: Path | None, what: str = "password") -> str | None:
    """Return the content of the file that the setting `key` names; None if it names none. Raises ConfigError."""
    if path is None:
        return None
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: {path} can't be read as text: {error}") from error
    if not secret:
        raise ConfigError(f"{key}: {path} is empty: it must hold the {what}")
    return secret


def read_token(key: str, path: Path | None) -> str | None:
    """`read` for a token. Raises ConfigError for one that could be guessed."""
    token = read(key, path, "token")
    if token is not None and (len(token) < _TOKEN_CHARACTERS or not token.isascii() or not token.isprintable()):
        raise ConfigError(
            f"{key}: {path} must hold at least {_TOKEN_CHARACTERS} characters of ASCII,"
            " such as `openssl rand -hex 32` gives"
        )
    return token
