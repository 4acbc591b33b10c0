"""Shortens text from outside for logs."""

from __future__ import annotations

_LONGEST = 200  # characters


def shorten(text: str) -> str:
    """Shorten to one line of bounded length."""
    line = " ".join(text[: 2 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
