"""What the platform's processes need in NATS beyond their roles in Evenlane, as options of `evenlane permissions`."""

import subprocess
import sys
from pathlib import Path

from examples.iot.ingress import CONSUMER, CONTROL, MQTT
from examples.iot.settings import SENDERS_INBOX
from examples.iot.subjects import Subjects

_EVENLANE = Path(sys.executable).with_name("evenlane")


def permissions(role: str, subjects: Subjects) -> list[str]:
    """Return the arguments of `evenlane permissions` for a gateway or a node of the platform.

    A gateway is a producer of all projects that creates their topics. In JetStream it has its two consumers, and it
    makes the stream of announcements. It answers those that send data by NATS. A node answers registrations.
    """
    response = subjects.wildcard("response")
    if role == "node":
        return ["node", "--publish", response]
    api = [
        f"STREAM.CREATE.{CONTROL.stream}",
        f"STREAM.MSG.GET.{MQTT.stream}",  # whether older data waits in front of a close
    ]
    verbs = ("DURABLE.CREATE", "INFO", "MSG.NEXT")
    api += [f"CONSUMER.{verb}.{source.stream}.{CONSUMER}" for source in (MQTT, CONTROL) for verb in verbs]
    publish = [
        subjects.wildcard("announce"),
        response,
        f"{SENDERS_INBOX}.>",
        *(f"$JS.API.{each}" for each in api),
        *(f"$JS.ACK.{source.stream}.{CONSUMER}.>" for source in (MQTT, CONTROL)),
    ]
    options = [word for each in publish for word in ("--publish", each)]
    options += [word for name in ("response", "data") for word in ("--subscribe", subjects.wildcard(name))]
    return ["producer", "--name", "gateway", "--topics", *options]


def print_permissions(role: str, subjects: Subjects, output: str) -> int:
    """Run `evenlane permissions`, and return its exit code."""
    command = [str(_EVENLANE), "permissions", *permissions(role, subjects), "--format", output]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - no shell
