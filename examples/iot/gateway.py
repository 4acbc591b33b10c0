"""A gateway: takes what devices and others publish, and acknowledges it only after Evenlane has acknowledged the put.

So a gateway may be killed at any time: another one gets its messages, and Evenlane knows those that were put already by
their ids. Any number may run.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import msgspec
import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from evenlane import (
    ConfigError,
    EvenlaneError,
    InvalidName,
    InvalidPut,
    InvalidTopic,
    PayloadTooLarge,
    Producer,
    PutRefused,
    Receipt,
    TopicDraining,
    Topics,
)
from examples.iot.database import Database, Refusal
from examples.iot.forwarder import Forwarder
from examples.iot.ingress import CONTROL, MQTT, Direct, Held, Inbound, Ingress, Source
from examples.iot.messages import Answer
from examples.iot.settings import PlatformSettings

# Messages in flight: from devices by MQTT, of announcements and closes, of data by NATS.
MQTT_WORKERS, CONTROL_WORKERS, DIRECT_WORKERS = 32, 4, 16
_QUEUE = "gateways"  # each message of data by NATS goes to one gateway
_DIRECT_S, _DIRECT_AGAIN_S = 4.0, 0.1  # how long to try to put data that nothing holds

_HOPELESS = (ConfigError, InvalidName, InvalidPut, InvalidTopic, PayloadTooLarge, PutRefused, TopicDraining)
_FOR_NOW = (EvenlaneError, nats.errors.Error, sqlite3.Error, OSError)


class Refused(Exception):
    """The message can't be put, and is kept with the reason."""


class Gateway:
    """A gateway on open connections. `say` prints a sentence."""

    def __init__(
        self,
        name: str,
        forwarder: Forwarder,
        ingress: Ingress,
        connection: Client,
        database: Database,
        say: Callable[[str], None],
    ) -> None:
        self.name, self._forwarder, self._ingress = name, forwarder, ingress
        self._connection, self._database, self._say = connection, database, say

    async def run(self, settings: PlatformSettings) -> None:
        """Work until cancelled. Prints a line when it is ready."""
        subjects = settings.subjects
        await self._connection.subscribe(subjects.wildcard("response"), cb=self._on_answer)
        direct = await self._connection.subscribe(subjects.wildcard("data"), queue=_QUEUE)
        await self._connection.flush()
        self._say(f"ready gateway={self.name}")
        async with asyncio.TaskGroup() as workers:
            for _ in range(MQTT_WORKERS):
                workers.create_task(self._work(MQTT))
            for _ in range(CONTROL_WORKERS):
                workers.create_task(self._work(CONTROL))
            for _ in range(DIRECT_WORKERS):
                workers.create_task(self._work_directly(direct))

    async def _work(self, source: Source) -> None:
        async for held in self._ingress.messages(source):
            await self._take(held)

    async def _take(self, held: Held) -> None:
        """Put one message, or refuse it, or leave it for later. Whatever is wrong with it harms no other message."""
        try:
            if not held.is_copy:
                with suppress(Refused):
                    await self._forward(held)
            await held.ack()
        except _FOR_NOW:
            with suppress(nats.errors.Error, OSError):  # without an answer it is delivered again, too
                await held.deliver_later()

    async def _work_directly(self, subscription: Subscription) -> None:
        while True:
            try:
                direct = Direct(await subscription.next_msg(None))
                if not direct.is_by_mqtt:
                    await self._take_directly(direct)
            except (nats.errors.Error, OSError):
                await asyncio.sleep(_DIRECT_AGAIN_S)

    async def _take_directly(self, direct: Direct) -> None:
        """Put data that nothing holds, and answer; try for a while if it can't be put now."""
        end = time.monotonic() + _DIRECT_S
        while True:
            try:
                await direct.ack(await self._forward(direct))
                return
            except Refused as refusal:
                await direct.refuse(400, str(refusal))
                return
            except _FOR_NOW as error:
                if time.monotonic() > end:
                    await direct.refuse(503, str(error))
                    return
            await asyncio.sleep(_DIRECT_AGAIN_S)

    async def _forward(self, inbound: Inbound) -> Receipt | None:
        """Put a message. If that is hopeless, keep it with the reason, say so, and raise Refused."""
        try:
            return await self._forwarder.forward(inbound)
        except _HOPELESS as error:
            reason = str(error)
        await self._database.refuse(Refusal(inbound.place, inbound.subject, reason, inbound.body, time.time()))
        self._say(f"{self.name} refused a message on {inbound.subject}: {reason}")
        await self._forwarder.answer_refusal(inbound, reason)
        raise Refused(reason)

    async def _on_answer(self, message: Msg) -> None:
        with suppress(msgspec.DecodeError):  # anybody may publish there; the producer knows the truth
            answer = msgspec.json.decode(message.data, type=Answer)
            if answer.state != "refused":
                self._forwarder.registrations.on_answer(answer.project)


async def run_gateway(name: str, settings: PlatformSettings) -> None:
    """Connect a gateway, and run it until cancelled."""
    async with AsyncExitStack() as opened:
        connection = await nats.connect(settings.nats, name=name, max_reconnect_attempts=-1)
        opened.push_async_callback(connection.close)
        ingress = Ingress(connection.jetstream(), settings)
        await ingress.prepare()
        producer = await opened.enter_async_context(Producer())
        topics = await opened.enter_async_context(Topics())
        forwarder = Forwarder(name, settings, connection=connection, ingress=ingress, producer=producer, topics=topics)
        database = await opened.enter_async_context(Database(settings.database))
        gateway = Gateway(name, forwarder, ingress, connection, database, lambda text: print(text, flush=True))
        await gateway.run(settings)
