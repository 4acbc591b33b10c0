"""Checks the patterns that limit a subscription to some projects. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 100
"""The most patterns of one subscription."""
_LONGEST_PROJECT = 64
_LONGEST_PATTERN = 2 * _LONGEST_PROJECT + 1  # between any two characters, one *
_PATTERN = re.compile(r"[A-Za-z0-9*][A-Za-z0-9_*-]*")


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise ConfigError for a pattern that no project can match, and for too many patterns."""
    if len(patterns) > MOST:
        raise ConfigError(f"--projects: a subscription has at most {MOST} patterns, not {len(patterns)}")
    for pattern in patterns:
        is_too_long = len(pattern) > _LONGEST_PATTERN or len(pattern.replace("*", "")) > _LONGEST_PROJECT
        if is_too_long or not _PATTERN.fullmatch(pattern):
            shown = repr(pattern) if len(pattern) <= _LONGEST_PATTERN else f"{pattern[:_LONGEST_PROJECT]!r}..."
            raise ConfigError(
                f"--projects: no project can match the pattern {shown}: a project has 1 to 64 letters, digits, '_' or"
                " '-', the first a letter or digit; '*' stands for any characters"
            )
