"""Settings for one object of a program: the process's, changed by its arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from evenlane.engine.base.config.settings import Settings, load
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def override(settings: Settings | None, given: Mapping[str, object]) -> Settings:
    """Return `settings`, or the process's, changed by the given arguments. Raises ConfigError."""
    if settings is None:
        return load(given).settings
    if not isinstance(settings, Settings):
        raise ConfigError(f"settings must be an evenlane.Settings, not {type(settings).__name__}")
    parsed = load(given, {}).settings
    changes = {key: getattr(parsed, key) for key, value in given.items() if value is not None}
    if "nats" in changes:
        changes["store"] = parsed.store  # not the setting's store, which may name another server
    return replace(settings, **changes)
