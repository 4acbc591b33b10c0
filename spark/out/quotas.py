"""Recommended quotas in the form that `evenlane topics apply FILE` takes."""

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
    """Whole topics, as `apply` replaces what it finds: what `topics` has of each, with another `qps`. Projects that it
    doesn't have are left out: nobody could say what else to write for them.
    """
    return {
        each["project"]: {**topics[each["project"]], "qps": each["recommended_qps"]}
        for each in recommended
        if each["project"] in topics
    }


def read_topics(file: Path) -> dict[str, dict[str, Any]]:
    """The present topics, in JSON as `apply` takes them. Raises ConfigError."""
    try:
        read = json.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"--topics: {file} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--topics: {file} is not JSON: {error}") from None
    if not isinstance(read, dict) or not all(isinstance(each, dict) for each in read.values()):
        raise ConfigError(f'--topics: {file} should hold {{"acme": {{"qps": 100, ...}}, ...}}')
    return read
