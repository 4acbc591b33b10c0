"""Loads a topic manifest: `{"acme": {"qps": 100, ...}, ...}` in JSON, or the same as TOML tables; a file or stdin."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenlane.engine.base.config.toml_file import read_toml
from evenlane.engine.base.names import check_project
from evenlane.engine.control.topics.plan import Manifest
from evenlane.engine.errors import ConfigError, InvalidName
from evenlane.quota.topics.strict_json import TopicError, read_object
from evenlane.quota.topics.topic import merge

STDIN = Path("-")
_MOST_BYTES = 256 << 20
_LIKE_JSON = re.compile(rb"\s*(\[\s*)?\{")
_EXAMPLE = '{"acme": {"qps": 100}}'


def name(path: Path) -> str:
    """Return the file's name for messages."""
    return "stdin" if path == STDIN else str(path)


def load_manifest(path: Path) -> Manifest:
    """Load a manifest. An invalid topic doesn't hide the others. Raises ConfigError for the file itself."""
    return read_manifest(_document(name(path), *_content(path)))


def read_manifest(document: Any) -> Manifest:
    """Read the document of a manifest. Raises ConfigError if it isn't one."""
    if not isinstance(document, Mapping):
        raise ConfigError(f"topics must be a mapping such as {_EXAMPLE}, and this is a {type(document).__name__}")
    described = Manifest({}, {})
    for project, fields in document.items():
        try:
            described.specs[project] = _parse(project, fields)
        except (InvalidName, TopicError) as error:
            described.wrong[project] = str(error)
    return described


def _parse(project: str, fields: object) -> bytes:
    check_project(project)
    if not isinstance(fields, Mapping):
        raise TopicError("", 'must be an object such as {"qps": 100}')
    return merge(None, fields)


def _content(path: Path) -> tuple[bytes, bool]:
    """Return the content, and whether it is TOML: stdin is, unless it begins like JSON."""
    try:
        if path != STDIN:
            return path.read_bytes(), path.suffix == ".toml"
        raw = sys.stdin.buffer.read()
    except OSError as error:
        raise ConfigError(f"{name(path)} can't be read: {error.strerror}") from None
    except ValueError as error:  # a null byte in the path
        raise ConfigError(f"{str(path)!r} can't be read: {error}") from None
    return raw, not _LIKE_JSON.match(raw)


def _document(called: str, raw: bytes, is_toml: bool) -> dict[str, object]:
    try:
        return read_toml(called, raw) if is_toml else read_object(raw, _MOST_BYTES, example=_EXAMPLE)
    except TopicError as error:
        raise ConfigError(f"{called} {error.reason}" if not error.field else f"{called}: {error}") from None
