"""Converts recommended quotas to the format of `evenlane topics apply FILE`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def apply_form(
    recommended: Iterable[Mapping[str, Any]], topics: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return complete topics, as `apply` replaces whole specs: each is the one in `topics` with another `qps`. Projects
    without a known topic are left out, as their other fields are unknown.
    """
    return {
        each["project"]: {**topics[each["project"]], "qps": each["recommended_qps"]}
        for each in recommended
        if each["project"] in topics
    }


def read_topics(file: Path) -> dict[str, dict[str, Any]]:
    """Read the present topics from JSON in the format of `apply`. Raises ConfigError."""
    try:
        read = json.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"--topics: {file} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--topics: {file} is not JSON: {error}") from None
    if not isinstance(read, dict) or not all(isinstance(each, dict) for each in read.values()):
        raise ConfigError(f'--topics: {file} should hold {{"acme": {{"qps": 100, ...}}, ...}}')
    return read
