"""Puts inbound messages into Evenlane: data under its project, announcements and closes for the partition's owner."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from nats.aio.client import Client

from evenlane import ConfigError, EvenlaneError, InvalidName, Producer, Receipt, TopicDraining, Topics, UnknownProject
from examples.iot import messages
from examples.iot.ingress import CONTROL, DIRECT_WORKERS, MQTT, Held, Inbound, Ingress
from examples.iot.messages import Announcement, Answer, Close
from examples.iot.registrations import Registrations, Step
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import Address, shorten
from examples.iot.worker_shares import WorkerShares

_CLOSED = ("draining", "deleted")


class NotYet(EvenlaneError):
    """The message can't be put now."""


class Forwarder:
    """Decides what becomes of a message, on open connections. `name` is the gateway's.

    Its methods raise NotYet, and other errors of Evenlane, if the message may be put later; and ConfigError,
    InvalidName and so on if it never may.
    """

    def __init__(
        self,
        name: str,
        settings: PlatformSettings,
        *,
        connection: Client,
        ingress: Ingress,
        producer: Producer,
        topics: Topics,
    ) -> None:
        self._name, self._settings, self._subjects = name, settings, settings.subjects
        self._connection, self._ingress, self._producer, self._topics = connection, ingress, producer, topics
        self.registrations = Registrations()
        self._shares = {
            MQTT: WorkerShares(MQTT.workers), CONTROL: WorkerShares(CONTROL.workers), None: WorkerShares(DIRECT_WORKERS)
        }  # fmt: skip

    async def forward(self, inbound: Inbound) -> Receipt | None:
        """Put a message. Returns None if it was answered without a put."""
        address = self._subjects.parse(inbound.subject)
        if address is None:
            raise ConfigError(f"{shorten(inbound.subject)} is no subject of the platform")
        if isinstance(inbound, Held) and address.kind == "announce":
            return await self._put_announcement(inbound, address)
        if isinstance(inbound, Held) and address.kind == "close":
            return await self._put_close(inbound, address)
        return await self._put_data(inbound, address)

    async def answer_refusal(self, inbound: Inbound, reason: str) -> None:
        """Answer an announcement or a close that was refused, if the project's name allows a subject."""
        address = self._subjects.parse(inbound.subject)
        if address is None or address.kind == "data":
            return
        project = address.project or messages.project_of(inbound.body)
        try:
            partition = self._producer.home_partition(project)
        except InvalidName:
            return
        await self._answer(Answer(project, "refused", partition, reason=reason))

    async def _put_data(self, inbound: Inbound, address: Address) -> Receipt:
        project = address.project or ""
        partition = self._check_place(project, address)
        step = self.registrations.on_data(project, time.monotonic())
        if step is Step.ASK:
            asked = Announcement(project, self._name, reopen=False)
            await self._ingress.announce(self._subjects, partition, msgspec.json.encode(asked))
        if step is not Step.PUT:
            raise NotYet(f"project {project} isn't registered yet")
        try:
            with self._share(inbound, project):
                return await self._producer.put(project, inbound.body, id=messages.id_of(inbound.body, inbound.place))
        except UnknownProject:
            self.registrations.on_unknown(project)
            raise
        except TopicDraining:
            raise ConfigError(f"project {project} is closed and takes no data: announce it to open it again") from None

    async def _put_announcement(self, held: Held, address: Address) -> Receipt | None:
        try:
            announcement = messages.decode(held.body, Announcement)
        except messages.Unreadable as error:
            raise ConfigError(f'the announcement isn\'t JSON such as {{"project": "acme"}}: {error}') from None
        project = announcement.project
        partition = self._check_place(project, address)
        if not await self._is_open(announcement):
            await self._answer(Answer(project, "closed", partition))
            return None
        return await self._put_control(messages.REGISTER, project, msgspec.json.encode(announcement), held)

    async def _is_open(self, announcement: Announcement) -> bool:
        """Return whether the project has a topic that takes puts; create or reopen it if that is what is asked for."""
        project = announcement.project
        try:
            status = await self._topics.get(project)
        except UnknownProject:
            qps = self._settings.qps if announcement.qps is None else announcement.qps
            await self._topics.set(project, qps=qps, by=self._name)
            return True
        if status.state is None:
            raise NotYet(f"the topic of {project} isn't in effect: {status.reason}")
        if status.state in _CLOSED:
            if not announcement.reopen:
                return False
            await self._topics.resume(project, by=self._name)
        return True

    async def _put_close(self, held: Held, address: Address) -> Receipt | None:
        project = address.project or ""
        partition = self._check_place(project, address)
        data = self._subjects.format("data", partition, project)
        if await self._ingress.has_older(data, held.published_at):
            raise NotYet(f"data of {project} from before its close isn't put yet")
        try:
            status = await self._topics.get(project)
        except UnknownProject:
            raise ConfigError(f"project {project} isn't registered, so it can't be closed") from None
        if status.state in _CLOSED:
            await self._answer(Answer(project, "closed", partition))
            return None
        return await self._put_control(
            messages.CLOSE, project, msgspec.json.encode(Close(status.revision, self._name)), held
        )

    async def _put_control(self, kind: str, project: str, body: bytes, held: Held) -> Receipt:
        """Put a message for the owner of the project's partition: the first group is on it. The topic was open when it
        was read, or has just been opened, which the producer may not know yet.
        """
        id_ = f"{kind}-{held.place}"
        try:
            with self._share(held, project):
                return await self._producer.put(
                    project, body, group=0, priority=messages.URGENT, id=id_, headers={"kind": kind}
                )
        except TopicDraining as error:
            raise NotYet(str(error)) from error

    @contextmanager
    def _share(self, inbound: Inbound, project: str) -> Iterator[None]:
        """Take one of the project's share of the workers during the block. Raises NotYet if it has none left."""
        shares = self._shares[inbound.source]
        if not shares.begin(project):
            raise NotYet(f"other messages of project {project} aren't put yet")
        try:
            yield
        finally:
            shares.end(project)

    def _check_place(self, project: str, address: Address) -> int:
        """Return the project's partition. Raises InvalidName, and ConfigError if the subject names another one."""
        partition = self._producer.home_partition(project)
        if address.partition is not None and address.partition != partition:
            raise ConfigError(f"project {project} is on partition {partition}, not on {address.partition}")
        return partition

    async def _answer(self, answer: Answer) -> None:
        subject = self._subjects.format("response", answer.partition, answer.project)
        await self._connection.publish(subject, msgspec.json.encode(answer))
