"""Reads TOML, and reports errors in readable sentences."""

from __future__ import annotations

import tomllib
from typing import Any

from evenlane.engine.errors import ConfigError
from evenlane.quota.topics.strict_json import BOM, has_bom, real


def read_toml(called: str, raw: bytes) -> dict[str, Any]:
    """Parse TOML. Raises ConfigError, with `called` as the file's name."""
    if has_bom(raw):
        raise ConfigError(f"{called} {BOM}")
    try:
        return tomllib.loads(raw.decode("utf-8"), parse_float=real)
    except UnicodeDecodeError:
        reason = "it isn't UTF-8 text"
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError:  # from `int`, which rejects thousands of digits
        reason = "a number has too many digits"
    raise ConfigError(f"{called} is not TOML in UTF-8: {reason}")
