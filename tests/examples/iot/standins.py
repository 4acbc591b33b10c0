"""What a gateway works with, in memory. The rules for names and partitions are Evenlane's own."""

import asyncio
from types import SimpleNamespace

from nats.aio.msg import Msg

from evenlane import Receipt, UnknownProject
from evenlane.engine.base import names
from evenlane.ring.hashing import partition_of
from examples.iot.ingress import MQTT, Held

PARTITIONS = 8


class Wire:
    """A connection: keeps what is published, and delivers nothing."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []

    async def publish(self, subject: str, payload: bytes = b"") -> None:
        self.published.append((subject, payload))

    async def subscribe(self, _subject: str, **_options: object) -> SimpleNamespace:
        return SimpleNamespace(next_msg=lambda _timeout: asyncio.Event().wait())

    async def flush(self) -> None:
        """Everything is sent."""


class Streams:
    """The streams in front of the gateways: yields the messages of devices given to it."""

    def __init__(self, *messages: Held) -> None:
        self._messages = list(messages)

    async def messages(self, source):
        while source is MQTT and self._messages:
            yield self._messages.pop(0)
        await asyncio.Event().wait()

    async def is_prepared(self) -> bool:
        return True

    async def has_older(self, *_: object) -> bool:
        return False

    async def announce(self, *_: object) -> None:
        """It is stored."""


class Queues:
    """A producer that knows every project with a valid name."""

    def __init__(self) -> None:
        self.put_bodies: list[bytes] = []

    def home_partition(self, project: str) -> int:
        return partition_of(names.check_project(project), 0, 1, PARTITIONS, "hashed")

    async def put(self, project: str, body: bytes, *, id: str, **_: object) -> Receipt:  # noqa: A002
        names.check_project(project)
        names.check_id(id)
        self.put_bodies.append(body)
        return Receipt("a-lane", len(self.put_bodies), duplicate=False)


class NoTopics:
    """The topics of an environment without projects."""

    async def get(self, project: str):
        raise UnknownProject(names.check_project(project))

    async def set(self, project: str, **_: object) -> None:
        names.check_project(project)


def held(wire: Wire, subject: str, body: bytes, number: int = 1, *, source=MQTT) -> Held:
    """A message in a stream."""
    reply = f"$JS.ACK.{source.stream}.gateways.1.{number}.{number}.1700000000000000000.0"
    return Held(source, Msg(_client=wire, subject=source.prefix + subject, reply=reply, data=body))


def ack_of(number: int, *, source=MQTT) -> tuple[str, bytes]:
    """What the gateway publishes to remove a message."""
    return (f"$JS.ACK.{source.stream}.gateways.1.{number}.{number}.1700000000000000000.0", b"")
