"""The way in: what devices and others have published, until a gateway has put it into Evenlane.

| published | held in | acknowledged to the sender |
| --- | --- | --- |
| by MQTT with QoS 1 | `$MQTT_msgs`, nats-server's own stream | by nats-server, once it is in there |
| by MQTT with QoS 2 | the same stream | by nats-server, even if it fails to move the message there |
| announcements and closes by NATS, or with QoS 0 | the stream `IOT` | by the stream; with QoS 0 not at all |
| data by NATS, or with QoS 0 | nothing | by the gateway, once Evenlane has it; with QoS 0 not at all |

All gateways share one durable consumer of each stream. A message that a gateway hasn't acknowledged, such as one that
was killed, goes to another one after `ACK_WAIT_S`. `$MQTT_msgs` keeps a message until then.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple
from uuid import uuid4

import aiomqtt
import msgspec
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig
from nats.js.errors import NotFoundError

from evenlane import ConfigError, Receipt
from evenlane.engine.base.aio.cancellation import cancellable
from evenlane.engine.store.jetstream.backend import nats_options
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import Subjects

STREAM, MQTT_STREAM = "IOT", "$MQTT_msgs"
CONSUMER = "gateways"
ACK_WAIT_S = 5.0
_MQTT_PREFIX = "$MQTT.msgs."
_QOS = "Nmqtt-Pub"  # header of messages that came by MQTT
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.2, 5.0


class Source(NamedTuple):
    """A stream, and what nats-server puts before the subjects in it. `workers` take its messages in each gateway."""

    stream: str
    prefix: str
    workers: int


MQTT, CONTROL = Source(MQTT_STREAM, _MQTT_PREFIX, 32), Source(STREAM, "", 4)
DIRECT_WORKERS = 16  # for data by NATS, which no stream holds


class Inbound:
    """A message on its way in. `place` is the same each time that it is delivered; `source` is None if no stream holds
    it.
    """

    source: Source | None = None

    def __init__(self, subject: str, message: Msg, place: str) -> None:
        self.subject, self.body, self.place = subject, message.data, place
        self._message = message

    @property
    def is_by_mqtt(self) -> bool:
        """Whether it was published by MQTT with QoS 1 or 2: then it is in `$MQTT_msgs`."""
        return (self._message.headers or {}).get(_QOS, "0") != "0"


class Held(Inbound):
    """A message that a stream holds."""

    def __init__(self, source: Source, message: Msg) -> None:
        self.source = source
        self.published_at = message.metadata.timestamp
        number, second = message.metadata.sequence.stream, self.published_at.timestamp()
        place = f"{source.stream.removeprefix('$')}-{number}-{second:.6f}"
        super().__init__(message.subject.removeprefix(source.prefix), message, place)
        self.is_copy = source.stream != MQTT_STREAM and self.is_by_mqtt

    async def ack(self) -> None:
        """Remove it: it is safe elsewhere."""
        await self._message.ack()

    async def deliver_later(self) -> None:
        """Have it delivered again, to any gateway."""
        await self._message.nak(delay=delay_s(self._message.metadata.num_delivered or 1))


class Direct(Inbound):
    """Data that nothing holds. The sender may wait for an answer, in the form of a stream's: it gets one on a reply
    subject that begins with `reply_prefix`.
    """

    def __init__(self, message: Msg, reply_prefix: str) -> None:
        super().__init__(message.subject, message, f"direct-{uuid4()}")
        self._reply_prefix = reply_prefix

    async def ack(self, receipt: Receipt | None) -> None:
        """Say that Evenlane has it."""
        if receipt is not None:
            await self._answer({"stream": receipt.stream, "seq": receipt.sequence, "duplicate": receipt.duplicate})

    async def refuse(self, code: int, reason: str) -> None:
        """Say why Evenlane doesn't have it: 400 for ever, 503 for now."""
        await self._answer({"error": {"code": code, "err_code": 0, "description": reason}})

    async def _answer(self, answer: dict[str, object]) -> None:
        if self._message.reply.startswith(self._reply_prefix):
            await self._message.respond(msgspec.json.encode(answer))


def delay_s(deliveries: int) -> float:
    """Return the pause before the next delivery of a message that has been delivered N times."""
    return min(_FIRST_DELAY_S * 2.0 ** min(deliveries - 1, 10), _LONGEST_DELAY_S)


class Ingress:
    """The two streams, as a gateway uses them."""

    def __init__(self, jetstream: JetStreamContext, settings: PlatformSettings) -> None:
        self._jetstream, self._settings = jetstream, settings

    async def prepare(self) -> None:
        """Create the streams and the consumers, if they are missing. Devices may publish from then on."""
        subjects = self._settings.subjects
        control = [subjects.wildcard(name) for name in ("announce", "close")]
        await self._jetstream.add_stream(
            StreamConfig(
                name=STREAM,
                subjects=control,
                retention=RetentionPolicy.WORK_QUEUE,
                num_replicas=self._settings.evenlane.replicas,
            )
        )
        await self._open_mqtt()
        for source, taken in ((MQTT, [*control, subjects.wildcard("data")]), (CONTROL, control)):
            await self._jetstream.add_consumer(
                source.stream,
                ConsumerConfig(
                    durable_name=CONSUMER,
                    ack_policy=AckPolicy.EXPLICIT,
                    ack_wait=ACK_WAIT_S,
                    max_ack_pending=-1,  # messages that wait for one project hold up no other one
                    filter_subjects=[source.prefix + subject for subject in taken],
                ),
            )

    async def is_prepared(self) -> bool:
        """Whether the consumers exist; somebody may delete them."""
        try:
            for source in (MQTT, CONTROL):
                await self._jetstream.consumer_info(source.stream, CONSUMER)
        except NotFoundError:
            return False
        return True

    async def _open_mqtt(self) -> None:
        """Connect by MQTT once: nats-server makes its stream when the first client connects."""
        try:
            await self._jetstream.stream_info(MQTT_STREAM)
        except NotFoundError:
            login, (host, port) = nats_options(self._settings.evenlane), self._settings.mqtt_address
            if login.creds_file is not None:
                raise ConfigError(
                    f"nats-server has no stream {MQTT_STREAM} yet, and a gateway with credentials for NATS alone can't"
                    " log in by MQTT to make it: connect a device once"
                ) from None
            async with aiomqtt.Client(
                host,
                port,
                identifier="gateways",
                username=login.user,
                password=login.read_password() or None,
                tls_context=login.tls(),
            ):
                await self._jetstream.stream_info(MQTT_STREAM)

    async def messages(self, source: Source) -> AsyncIterator[Held]:
        """Yield messages, one at a time, for ever. Each is to be acknowledged, or to be delivered later."""
        subscription = await self._jetstream.pull_subscribe_bind(consumer=CONSUMER, stream=source.stream)
        while True:
            try:
                [message] = await cancellable(subscription.fetch(1, timeout=5))
                held = Held(source, message)
            except TimeoutError:
                continue
            except Exception:  # noqa: BLE001 - such as while the server restarts; the next fetch may succeed
                await asyncio.sleep(0.5)
                continue
            yield held

    async def has_older(self, subject: str, published_at: datetime) -> bool:
        """Whether a message of a subject that was acknowledged to a device before this time isn't put yet."""
        try:
            oldest = await self._jetstream.get_msg(MQTT_STREAM, seq=1, subject=_MQTT_PREFIX + subject, next=True)
        except NotFoundError:
            return False
        return oldest.time is not None and oldest.time < published_at

    async def announce(self, subjects: Subjects, partition: int, body: bytes) -> None:
        """Publish an announcement; return once it is stored."""
        await self._jetstream.publish(subjects.format("announce", partition), body, stream=STREAM)
