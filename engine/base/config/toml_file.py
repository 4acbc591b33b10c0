"""Reads TOML, and reports errors in readable sentences."""

from __future__ import annotations

import re
import tomllib
from ast import literal_eval
from typing import Any

from evenlane.engine.errors import ConfigError
from evenlane.quota.topics.strict_json import BOM, has_bom, real

_TWICE = re.compile(r"^Cannot declare (\(.*\)) twice", re.DOTALL)  # the key as a tuple, as tomllib writes it


def read_toml(called: str, raw: bytes) -> dict[str, Any]:
    """Parse TOML. Raises ConfigError, with `called` as the file's name."""
    if has_bom(raw):
        raise ConfigError(f"{called} {BOM}")
    try:
        return tomllib.loads(raw.decode("utf-8"), parse_float=real)
    except UnicodeDecodeError:
        raise ConfigError(f"{called} is not TOML in UTF-8: it isn't UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        reason = _TWICE.sub(_name_duplicate, str(error))
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError:  # from `int`, which rejects thousands of digits
        reason = "a number has too many digits"
    raise ConfigError(f"{called} is not valid TOML: {reason}")


def _name_duplicate(match: re.Match[str]) -> str:
    return f"[{'.'.join(literal_eval(match[1]))}] is there twice"
