"""Settings of the platform, from `IOT_*` variables; those of Evenlane itself are `EVENLANE_*` variables."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

from evenlane import ConfigError
from examples.iot.subjects import Subjects

OPEN_INBOX = "_INBOX"
SENDERS_INBOX = f"{OPEN_INBOX}.senders"
"""The first words of the reply subjects of those that send data by NATS, where each user has reply subjects of its own.
"""


class Login(NamedTuple):
    """How the process logs in to NATS: as Evenlane in the same process does."""

    user: str | None = None
    password_file: Path | None = None
    creds_file: Path | None = None
    ca: Path | None = None
    inbox: str = "_INBOX"

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        paths = {name: environ.get(f"EVENLANE_NATS_{name.upper()}") for name in ("password_file", "creds_file", "ca")}
        return cls(
            user=environ.get("EVENLANE_NATS_USER"),
            inbox=environ.get("EVENLANE_NATS_INBOX", "_INBOX"),
            **{name: Path(path) for name, path in paths.items() if path is not None},
        )

    def password(self) -> str:
        """Raises ConfigError."""
        if self.password_file is None:
            return ""
        try:
            return self.password_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"EVENLANE_NATS_PASSWORD_FILE: {self.password_file}: {error.strerror}") from error

    def tls(self) -> ssl.SSLContext | None:
        """Raises ConfigError."""
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise ConfigError(f"EVENLANE_NATS_CA: {self.ca}: {error.strerror or error}") from error

    def options(self) -> dict[str, Any]:
        """The options of nats-py. Raises ConfigError."""
        found: dict[str, Any] = {"inbox_prefix": self.inbox}
        if self.user is not None:
            found |= {"user": self.user, "password": self.password()}
        if self.creds_file is not None:
            found["user_credentials"] = str(self.creds_file)
        context = self.tls()
        return found if context is None else found | {"tls": context}


@dataclass(frozen=True)
class PlatformSettings:
    """Settings that all processes of the platform share. Raises ConfigError."""

    nats: str = "nats://127.0.0.1:4222"
    mqtt: str = "127.0.0.1:1883"
    database: Path = Path(".iot/iot.db")
    replicas: int = 1
    qps: float = 100.0
    """Quota of a project that an announcement without `qps` creates, in messages per second."""
    subjects: Subjects = field(default_factory=Subjects)
    login: Login = field(default_factory=Login)

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read `EVENLANE_NATS` and its login, `EVENLANE_REPLICAS`, `IOT_MQTT`, `IOT_DATABASE`, `IOT_QPS`, and
        `IOT_SUBJECT_ANNOUNCE`, `_RESPONSE`, `_CLOSE` and `_DATA`.
        """
        given = {each.name: environ.get(f"IOT_SUBJECT_{each.name.upper()}") for each in fields(Subjects)}
        return cls(
            nats=environ.get("EVENLANE_NATS", cls.nats),
            mqtt=environ.get("IOT_MQTT", cls.mqtt),
            database=Path(environ.get("IOT_DATABASE", cls.database)),
            replicas=int(_number("EVENLANE_REPLICAS", environ.get("EVENLANE_REPLICAS", "1"), 1, 5)),
            qps=_number("IOT_QPS", environ.get("IOT_QPS", str(cls.qps)), 0.01, 1_000_000),
            login=Login.of(environ),
            subjects=Subjects(**{name: template for name, template in given.items() if template is not None}),
        )

    @property
    def reply_prefix(self) -> str:
        """What the reply subjects begin with that a gateway answers to: a sender can name any subject, and nats-server
        doesn't check it. Where each user has reply subjects of its own, these are those of senders alone.
        """
        return f"{OPEN_INBOX}." if self.login.inbox == OPEN_INBOX else f"{SENDERS_INBOX}."

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
