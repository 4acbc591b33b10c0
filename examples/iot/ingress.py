"""The way in: two streams that hold what devices and gateways have published until a gateway has put it into Evenlane.

- `$MQTT_msgs` is nats-server's own. A device that publishes with QoS 1 gets its PUBACK once the message is in there,
  and the message stays until the consumer of the gateways has acknowledged it.
- `IOT` has what isn't acknowledged to a device: messages with QoS 0, and those of clients that speak NATS.

All gateways share one durable consumer of each stream. A message that a gateway hasn't acknowledged, such as one that
was killed, goes to another one after `ACK_WAIT_S`.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple

import aiomqtt
import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig
from nats.js.errors import NotFoundError

from examples.iot.settings import PlatformSettings
from examples.iot.subjects import Subjects

STREAM, MQTT_STREAM = "IOT", "$MQTT_msgs"
CONSUMER = "gateways"
ACK_WAIT_S = 5.0
_MQTT_PREFIX = "$MQTT.msgs."
_QOS = "Nmqtt-Pub"  # header of messages that came by MQTT
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.2, 5.0


class Source(NamedTuple):
    """A stream, and what nats-server puts before the subjects in it."""

    stream: str
    prefix: str


SOURCES = (Source(MQTT_STREAM, _MQTT_PREFIX), Source(STREAM, ""))


class Inbound:
    """A message on its way in."""

    def __init__(self, source: Source, message: Msg) -> None:
        self._message, self._source = message, source
        self.subject = message.subject.removeprefix(source.prefix)
        self.body = message.data

    @property
    def place(self) -> str:
        """Its place in its stream: the same each time that it is delivered."""
        stream = self._source.stream.removeprefix("$")
        return f"{stream}-{self._message.metadata.sequence.stream}-{int(self.published_at.timestamp() * 1e6)}"

    @property
    def published_at(self) -> datetime:
        return self._message.metadata.timestamp

    @property
    def is_copy(self) -> bool:
        """Whether the stream of MQTT has it, too."""
        return not self._source.prefix and (self._message.headers or {}).get(_QOS, "0") != "0"

    async def ack(self) -> None:
        """Remove it: it is safe elsewhere."""
        await self._message.ack()

    async def deliver_later(self) -> None:
        """Have it delivered again, to any gateway."""
        await self._message.nak(delay=delay_s(self._message.metadata.num_delivered or 1))


def delay_s(deliveries: int) -> float:
    """Return the pause before the next delivery of a message that has been delivered N times."""
    return min(_FIRST_DELAY_S * 2.0 ** min(deliveries - 1, 10), _LONGEST_DELAY_S)


class Ingress:
    """The two streams, as a gateway uses them."""

    def __init__(self, jetstream: JetStreamContext, settings: PlatformSettings) -> None:
        self._jetstream, self._settings = jetstream, settings

    async def prepare(self) -> None:
        """Create the streams and the consumers, if they are missing. Devices may publish from then on."""
        subjects = self._settings.subjects.inbound()
        await self._jetstream.add_stream(
            StreamConfig(name=STREAM, subjects=subjects, retention=RetentionPolicy.WORK_QUEUE)
        )
        await self._open_mqtt()
        for source in SOURCES:
            await self._jetstream.add_consumer(
                source.stream,
                ConsumerConfig(
                    durable_name=CONSUMER,
                    ack_policy=AckPolicy.EXPLICIT,
                    ack_wait=ACK_WAIT_S,
                    max_ack_pending=-1,  # messages that wait for one project hold up no other one
                    filter_subjects=[source.prefix + subject for subject in subjects],
                ),
            )

    async def _open_mqtt(self) -> None:
        """Connect by MQTT once: nats-server makes its stream when the first client connects."""
        try:
            await self._jetstream.stream_info(MQTT_STREAM)
        except NotFoundError:
            host, port = self._settings.mqtt_address
            async with aiomqtt.Client(host, port, identifier="gateways"):
                await self._jetstream.stream_info(MQTT_STREAM)

    async def messages(self, source: Source) -> AsyncIterator[Inbound]:
        """Yield messages, one at a time, for ever. Each is to be acknowledged, or to be delivered later."""
        subscription = await self._jetstream.pull_subscribe_bind(consumer=CONSUMER, stream=source.stream)
        while True:
            try:
                [message] = await subscription.fetch(1, timeout=5)
            except TimeoutError:
                continue
            except nats.errors.Error:
                await asyncio.sleep(0.5)  # the server restarts
                continue
            yield Inbound(source, message)

    async def has_older(self, subject: str, published_at: datetime) -> bool:
        """Whether a message of a subject that was published before this time isn't put yet."""
        for source in SOURCES:
            try:
                oldest = await self._jetstream.get_msg(source.stream, seq=1, subject=source.prefix + subject, next=True)
            except NotFoundError:
                continue
            if oldest.time is not None and oldest.time < published_at:
                return True
        return False

    async def announce(self, subjects: Subjects, partition: int, body: bytes) -> None:
        """Publish an announcement; return once it is stored."""
        await self._jetstream.publish(subjects.format("announce", partition), body, stream=STREAM)
