"""A file that describes topics: `{"acme": {"qps": 100, ...}, ...}` in JSON, or the same as TOML tables."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from engine.errors import ConfigError, InvalidName
from engine.names import check_project
from engine.wish_plan import Described
from quota.strict_json import TopicError, read_object
from quota.topic import merge

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 256 << 20


def read(path: Path) -> Described:
    """What is wrong with one project's topic hides nothing of the others. Raises ConfigError for the file itself."""
    described = Described({}, {})
    for project, fields in _document(path).items():
        try:
            described.wishes[project] = _wish(project, fields)
        except (InvalidName, TopicError) as error:
            described.wrong[project] = str(error)
    return described


def _wish(project: str, fields: object) -> bytes:
    check_project(project)
    if not isinstance(fields, dict):
        raise TopicError("", 'must be an object such as {"qps": 100}')
    return merge(None, fields)


def _document(path: Path) -> dict[str, object]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None
    try:
        if path.suffix == ".toml":
            return tomllib.loads(raw.decode("utf-8"))
        return read_object(raw, _MOST_BYTES)
    except TopicError as error:
        raise ConfigError(f"{path} {error.reason}" if not error.field else f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML in UTF-8: {error}") from None
