"""A gateway: takes what devices and others publish, and acknowledges it only after Evenlane has acknowledged the put.

So a gateway may be killed at any time: another one gets its messages, and Evenlane knows those that were put already by
their ids. Any number may run.
"""

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import aiomqtt
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
from evenlane.engine.base.aio.cancellation import cancellable
from examples.iot.connection import connect
from examples.iot.database import Database, Refusal
from examples.iot.forwarder import Forwarder
from examples.iot.ingress import CONTROL, DIRECT_WORKERS, MQTT, Direct, Held, Inbound, Ingress, Source
from examples.iot.messages import Answer, Unreadable, decode
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import shorten

_QUEUE = "gateways"  # each message of data by NATS goes to one gateway
_DIRECT_S, _DIRECT_AGAIN_S = 4.0, 0.1  # how long to try to put data that nothing holds
_LOOK_EACH_S = 1.0

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
            workers.create_task(self._keep_prepared())
            for source in (MQTT, CONTROL):
                for _ in range(source.workers):
                    workers.create_task(self._work(source))
            for _ in range(DIRECT_WORKERS):
                workers.create_task(self._work_directly(direct, settings.reply_prefix))

    async def _work(self, source: Source) -> None:
        async for held in self._ingress.messages(source):
            await cancellable(self._take(held))

    async def _take(self, held: Held) -> None:
        """Put one message, or refuse it, or leave it for later. Whatever is wrong with it harms no other message."""
        try:
            if not held.is_copy:
                with suppress(Refused):
                    await self._forward(held)
            await held.ack()
        except Exception as error:  # noqa: BLE001 - no message may end a worker
            with suppress(Exception):  # without an answer it is delivered again, too
                await held.deliver_later()
            self._report(held, error)

    async def _work_directly(self, subscription: Subscription, reply_prefix: str) -> None:
        while True:
            try:
                direct = Direct(await cancellable(subscription.next_msg(None)), reply_prefix)
            except (nats.errors.Error, OSError):
                await asyncio.sleep(_DIRECT_AGAIN_S)
                continue
            if direct.is_by_mqtt:
                continue
            try:
                await cancellable(self._take_directly(direct))
            except Exception as error:  # noqa: BLE001 - no message may end a worker
                self._report(direct, error)

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
        """Put a message. If that is hopeless, or fails for a reason that nobody has foreseen, keep it with the reason,
        say so, and raise Refused.
        """
        try:
            return await self._forwarder.forward(inbound)
        except _HOPELESS as error:
            reason = str(error)
        except _FOR_NOW:
            raise
        except Exception as error:  # noqa: BLE001 - it would fail at the next gateway, too
            reason = _unforeseen(error)
        await self._database.refuse(Refusal(inbound.place, inbound.subject, reason, inbound.body, time.time()))
        self._say(f"{self.name} refused a message on {shorten(inbound.subject)}: {reason}")
        await self._forwarder.answer_refusal(inbound, reason)
        raise Refused(reason)

    def _report(self, inbound: Inbound, error: Exception) -> None:
        """Say what nobody has foreseen; the rest passes, and the message is delivered again."""
        if isinstance(error, _FOR_NOW):
            return
        with suppress(OSError):  # nobody may read it any more
            self._say(f"{self.name} can't take a message on {shorten(inbound.subject)} now: {_unforeseen(error)}")

    async def _keep_prepared(self) -> None:
        """Make the consumers again if somebody deletes them: without them no gateway gets anything."""
        while True:
            await asyncio.sleep(_LOOK_EACH_S)
            with suppress(nats.errors.Error, OSError, aiomqtt.MqttError):  # the next look may succeed
                if not await cancellable(self._ingress.is_prepared()):
                    await cancellable(self._ingress.prepare())
                    self._say(f"{self.name} has created its consumers again: somebody had deleted one")

    async def _on_answer(self, message: Msg) -> None:
        with suppress(Unreadable):  # anybody may publish there; the producer knows the truth
            answer = decode(message.data, Answer)
            if answer.state != "refused":
                self._forwarder.registrations.on_answer(answer.project)


def _unforeseen(error: Exception) -> str:
    return f"an error that the gateway doesn't know, {type(error).__name__}: {shorten(str(error))}"


def _print(sentence: str) -> None:
    """Print it in any locale: a device may have chosen the characters."""
    encoding = sys.stdout.encoding
    print(sentence.encode(encoding, "backslashreplace").decode(encoding), flush=True)


async def run_gateway(name: str, settings: PlatformSettings) -> None:
    """Connect a gateway, and run it until cancelled."""
    async with AsyncExitStack() as opened:
        connection = await connect(settings, name)
        opened.push_async_callback(connection.close)
        ingress = Ingress(connection.jetstream(), settings)
        await ingress.prepare()
        producer = await opened.enter_async_context(Producer())
        topics = await opened.enter_async_context(Topics())
        forwarder = Forwarder(name, settings, connection=connection, ingress=ingress, producer=producer, topics=topics)
        database = await opened.enter_async_context(Database(settings.database))
        gateway = Gateway(name, forwarder, ingress, connection, database, _print)
        await gateway.run(settings)
