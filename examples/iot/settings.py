"""Settings of the platform, from `IOT_*` variables; those of Evenlane itself are `EVENLANE_*` variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

from evenlane import ConfigError, Settings
from evenlane.engine.base.config.settings import load
from examples.iot.subjects import Subjects

OPEN_INBOX = "_INBOX"
SENDERS_INBOX = f"{OPEN_INBOX}.senders"
"""The first words of the reply subjects of those that send data by NATS, where each user has reply subjects of its own.
"""


@dataclass(frozen=True)
class PlatformSettings:
    """Settings that all processes of the platform share. Raises ConfigError."""

    evenlane: Settings = field(default_factory=Settings)
    """Those of Evenlane: the platform logs in to NATS as it does."""
    mqtt: str = "127.0.0.1:1883"
    database: Path = Path(".iot/iot.db")
    qps: float = 100.0
    """Quota of a project that an announcement without `qps` creates, in messages per second."""
    subjects: Subjects = field(default_factory=Subjects)

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read Evenlane's settings, `IOT_MQTT`, `IOT_DATABASE`, `IOT_QPS`, and `IOT_SUBJECT_ANNOUNCE`, `_RESPONSE`,
        `_CLOSE` and `_DATA`.
        """
        given = {each.name: environ.get(f"IOT_SUBJECT_{each.name.upper()}") for each in fields(Subjects)}
        return cls(
            evenlane=load(environ=environ).settings,
            mqtt=environ.get("IOT_MQTT", cls.mqtt),
            database=Path(environ.get("IOT_DATABASE", cls.database)),
            qps=_number("IOT_QPS", environ.get("IOT_QPS", str(cls.qps)), 0.01, 1_000_000),
            subjects=Subjects(**{name: template for name, template in given.items() if template is not None}),
        )

    @property
    def reply_prefix(self) -> str:
        """What the reply subjects begin with that a gateway answers to: a sender can name any subject, and nats-server
        doesn't check it. Where each user has reply subjects of its own, these are those of senders alone.
        """
        return f"{OPEN_INBOX}." if self.evenlane.nats_inbox == OPEN_INBOX else f"{SENDERS_INBOX}."

    @property
    def mqtt_address(self) -> tuple[str, int]:
        host, _, port = self.mqtt.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"IOT_MQTT ({self.mqtt}) isn't HOST:PORT")
        return host, int(port)


def _number(name: str, text: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise ConfigError(f"{name} ({text}) isn't a number from {least:,} to {most:,}")
    return number
