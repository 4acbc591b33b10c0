"""Connection settings for reports: the same servers as for every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.config.settings import Settings, load
from evenlane.engine.base.durations import parse_duration, parse_past
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = (
    "nats", "env", "subscription", "nats_user", "nats_password_file", "nats_creds_file", "nats_ca", "nats_cert",
    "nats_key", "nats_inbox",
)  # fmt: skip
"""Settings that matter to a reader."""


def connect(given: Mapping[str, str]) -> Settings:
    """Build settings from `given`, some of OPTIONS; others come from `EVENLANE_*` variables and the file. Raises
    ConfigError with the option's name.
    """
    try:
        return load(dict(given)).settings
    except ConfigError as error:
        text = str(error)
        for name in sorted(given, key=len, reverse=True):  # longest first, as `nats` begins other names
            text = text.replace(f"flag --{name.replace('_', '-')}", f"option {name}")
        raise ConfigError(text) from error


__all__ = ["OPTIONS", "Settings", "connect", "parse_duration", "parse_past"]
