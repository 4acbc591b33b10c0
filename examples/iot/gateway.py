"""A gateway: puts the data of devices into Evenlane, each under its project, and registers projects.

It acknowledges a message only after Evenlane has acknowledged the put. So a gateway may be killed at any time: another
one gets its messages, and Evenlane knows those that were put already by their ids. Any number may run.
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

from evenlane import (
    ConfigError,
    EvenlaneError,
    InvalidName,
    InvalidPut,
    InvalidTopic,
    PayloadTooLarge,
    Producer,
    PutRefused,
    TopicDraining,
    Topics,
    UnknownProject,
)
from examples.iot import messages
from examples.iot.database import Database, Refusal
from examples.iot.ingress import SOURCES, Inbound, Ingress, Source
from examples.iot.messages import Announcement, Answer, Close
from examples.iot.registrations import Registrations, Step
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import Address

WORKERS = 16  # messages in flight from each stream
_HOPELESS = (ConfigError, InvalidName, InvalidPut, InvalidTopic, PayloadTooLarge, PutRefused, TopicDraining)
_CLOSED = ("draining", "deleted")


class NotYet(EvenlaneError):
    """The message can't be put now."""


class Gateway:
    """A gateway on open connections. `say` prints a sentence."""

    def __init__(
        self,
        name: str,
        settings: PlatformSettings,
        *,
        connection: Client,
        ingress: Ingress,
        producer: Producer,
        topics: Topics,
        database: Database,
        say: Callable[[str], None],
    ) -> None:
        self.name, self._settings, self._subjects = name, settings, settings.subjects
        self._connection, self._ingress, self._producer = connection, ingress, producer
        self._topics, self._database, self._say = topics, database, say
        self._registrations = Registrations()
        self._put = {"data": self._put_data, "announce": self._put_announcement, "close": self._put_close}

    async def run(self) -> None:
        """Work until cancelled."""
        await self._connection.subscribe(self._subjects.wildcard("response"), cb=self._on_answer)
        async with asyncio.TaskGroup() as workers:
            for source in SOURCES:
                for _ in range(WORKERS):
                    workers.create_task(self._work(source))

    async def _work(self, source: Source) -> None:
        async for inbound in self._ingress.messages(source):
            await self.take(inbound)

    async def take(self, inbound: Inbound) -> None:
        """Put one message, or refuse it, or leave it for later. Whatever is wrong with it harms no other message."""
        try:
            if not inbound.is_copy:
                await self._dispatch(inbound)
            await inbound.ack()
        except (EvenlaneError, nats.errors.Error, sqlite3.Error, OSError):
            with suppress(nats.errors.Error, OSError):  # without an answer it is delivered again, too
                await inbound.deliver_later()

    async def _dispatch(self, inbound: Inbound) -> None:
        address = self._subjects.parse(inbound.subject)
        if address is None:
            return  # not of the platform
        try:
            await self._put[address.kind](inbound, address)
        except _HOPELESS as error:
            await self._refuse(inbound, address, str(error))

    async def _put_data(self, inbound: Inbound, address: Address) -> None:
        project = address.project or ""
        partition = self._check_place(project, address)
        step = self._registrations.on_data(project, time.monotonic())
        if step is Step.ASK:
            asked = Announcement(project, self.name, reopen=False)
            await self._ingress.announce(self._subjects, partition, msgspec.json.encode(asked))
        if step is not Step.PUT:
            raise NotYet(f"{project} isn't registered yet")
        try:
            await self._producer.put(project, inbound.body, id=messages.id_of(inbound.body, inbound.place))
        except UnknownProject:
            self._registrations.on_unknown(project)
            raise
        except TopicDraining:
            raise ConfigError(f"project {project} is closed and takes no data: announce it to open it again") from None

    async def _put_announcement(self, inbound: Inbound, address: Address) -> None:
        try:
            announcement = msgspec.json.decode(inbound.body, type=Announcement)
        except msgspec.DecodeError as error:
            raise ConfigError(f'the announcement isn\'t JSON such as {{"project": "acme"}}: {error}') from None
        project = announcement.project
        partition = self._check_place(project, address)
        if not await self._is_open(announcement):
            await self._answer(Answer(project, "closed", partition))
            return
        await self._put_control(messages.REGISTER, project, msgspec.json.encode(announcement), inbound)

    async def _is_open(self, announcement: Announcement) -> bool:
        """Return whether the project has a topic that takes puts; create or reopen it if that is what is asked for."""
        project = announcement.project
        try:
            status = await self._topics.get(project)
        except UnknownProject:
            qps = self._settings.qps if announcement.qps is None else announcement.qps
            await self._topics.set(project, qps=qps, by=self.name)
            return True
        if status.state is None:
            raise NotYet(f"the topic of {project} isn't in effect: {status.reason}")
        if status.state in _CLOSED:
            if not announcement.reopen:
                return False
            await self._topics.resume(project, by=self.name)
        return True

    async def _put_close(self, inbound: Inbound, address: Address) -> None:
        project = address.project or ""
        partition = self._check_place(project, address)
        data = self._subjects.format("data", partition, project)
        if await self._ingress.has_older(data, inbound.published_at):
            raise NotYet(f"data of {project} from before its close isn't put yet")
        try:
            status = await self._topics.get(project)
        except UnknownProject:
            raise ConfigError(f"project {project} isn't registered, so it can't be closed") from None
        if status.state in _CLOSED:
            await self._answer(Answer(project, "closed", partition))
            return
        close = msgspec.json.encode(Close(status.revision, self.name))
        await self._put_control(messages.CLOSE, project, close, inbound)

    async def _put_control(self, kind: str, project: str, body: bytes, inbound: Inbound) -> None:
        """Put a message for the owner of the project's partition: the first group is on it."""
        await self._producer.put(
            project, body, group=0, priority=messages.URGENT, id=f"{kind}-{inbound.place}", headers={"kind": kind}
        )

    def _check_place(self, project: str, address: Address) -> int:
        """Return the project's partition. Raises InvalidName, and ConfigError if the subject names another one."""
        partition = self._producer.home_partition(project)
        if address.partition is not None and address.partition != partition:
            raise ConfigError(f"project {project} is on partition {partition}, not on {address.partition}")
        return partition

    async def _refuse(self, inbound: Inbound, address: Address, reason: str) -> None:
        """Keep the message and the reason in the database, where nothing waits for them, and say it."""
        await self._database.refuse(Refusal(inbound.place, inbound.subject, reason, inbound.body, time.time()))
        self._say(f"{self.name} refused a message on {inbound.subject}: {reason}")
        project = address.project or messages.project_of(inbound.body)
        if address.kind == "data":
            return
        try:
            partition = self._producer.home_partition(project)
        except InvalidName:
            return  # there is no subject with such a name
        await self._answer(Answer(project, "refused", partition, reason=reason))

    async def _answer(self, answer: Answer) -> None:
        subject = self._subjects.format("response", answer.partition, answer.project)
        await self._connection.publish(subject, msgspec.json.encode(answer))

    async def _on_answer(self, message: Msg) -> None:
        with suppress(msgspec.DecodeError):  # anybody may publish there; the producer knows the truth
            answer = msgspec.json.decode(message.data, type=Answer)
            if answer.state != "refused":
                self._registrations.on_answer(answer.project)


async def run_gateway(name: str, settings: PlatformSettings) -> None:
    """Connect a gateway, print a line when it is ready, and run it until cancelled."""
    async with AsyncExitStack() as opened:
        connection = await nats.connect(settings.nats, name=name, max_reconnect_attempts=-1)
        opened.push_async_callback(connection.close)
        ingress = Ingress(connection.jetstream(), settings)
        await ingress.prepare()
        gateway = Gateway(
            name,
            settings,
            connection=connection,
            ingress=ingress,
            producer=await opened.enter_async_context(Producer()),
            topics=await opened.enter_async_context(Topics()),
            database=await opened.enter_async_context(Database(settings.database)),
            say=lambda sentence: print(sentence, flush=True),
        )
        print(f"ready gateway={name}", flush=True)
        await gateway.run()
