"""A file that describes topics: `{"acme": {"qps": 100, ...}, ...}` in JSON, or the same as TOML tables."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from engine.errors import ConfigError, InvalidTopic
from engine.names import check_project
from quota.strict_json import TopicError, read_object
from quota.topic import merge

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 256 << 20


def read(path: Path) -> dict[str, bytes]:
    """Project -> wish. Raises ConfigError for the file, InvalidName and InvalidTopic for what is in it."""
    wishes: dict[str, bytes] = {}
    for project, fields in _document(path).items():
        check_project(project)
        if not isinstance(fields, dict):
            raise InvalidTopic(f'topic {project} in {path}: must be an object such as {{"qps": 100}}')
        try:
            wishes[project] = merge(None, fields)
        except TopicError as error:
            raise InvalidTopic(f"topic {project} in {path}: {error}") from None
    return wishes


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
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML in UTF-8: {error}") from None
