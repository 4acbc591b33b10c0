"""The device platform on real servers and processes, and a client of it."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiomqtt
import msgspec
import nats
import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.owners import read_owners
from evenlane.engine.runtime.embedded.child import guard
from evenlane.ring.hashing import partition_of
from examples.iot.database import connect
from examples.iot.messages import Answer
from examples.iot.processes import Platform, Ports
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import to_topic

PARTITIONS = 24  # a project of several groups is on two of them


@dataclass
class Site:
    """A running platform, as devices, gateways in other languages and operators see it."""

    platform: Platform
    settings: PlatformSettings

    def partition(self, project: str) -> int:
        return partition_of(project, 0, 1, PARTITIONS, "hashed")

    def subject(self, name: str, project: str) -> str:
        return self.settings.subjects.format(name, self.partition(project), project)

    async def device_sends(self, project: str, body: bytes, *, qos: int = 1) -> None:
        """Send as a device."""
        await self.publish_by_mqtt(self.subject("data", project), body, qos=qos)

    async def publish_by_mqtt(self, subject: str, body: bytes, *, qos: int = 1) -> None:
        """Publish with mosquitto_pub, if this machine has it."""
        topic = to_topic(subject)
        host, port = self.settings.mqtt_address
        if (program := shutil.which("mosquitto_pub")) is None:
            async with aiomqtt.Client(host, port) as device:
                await device.publish(topic, body, qos=qos)
            return
        arguments = ("-h", host, "-p", str(port), "-q", str(qos), "-t", topic, "-s")
        sending = await asyncio.create_subprocess_exec(program, *arguments, stdin=asyncio.subprocess.PIPE)
        await sending.communicate(body)
        assert 0 == sending.returncode

    async def publish(self, subject: str, body: bytes) -> None:
        """Publish by NATS, as a program in another language does; return once it is acknowledged."""
        client = await nats.connect(self.settings.evenlane.nats[0])
        await client.jetstream().publish(subject, body)
        await client.close()

    @asynccontextmanager
    async def answers(self, project: str) -> AsyncIterator[Callable[[], Awaitable[Answer]]]:
        """Listen to the answers about a project; yields a function that waits for the next one."""
        client = await nats.connect(self.settings.evenlane.nats[0])
        subscription = await client.subscribe(self.subject("response", project))
        await client.flush()

        async def next_answer() -> Answer:
            return msgspec.json.decode((await subscription.next_msg(60)).data, type=Answer)

        yield next_answer
        await client.close()

    def rows(self, query: str, *values: object) -> list[tuple]:
        """Rows of the database file."""
        connection = connect(self.settings.database)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def ids(self, project: str) -> set[str]:
        return {name for (name,) in self.rows("SELECT id FROM data WHERE project = ?", project)}

    def refusals(self) -> list[tuple[str, str]]:
        """Subject and reason of each refused message, the oldest first."""
        return self.rows("SELECT subject, reason FROM refused ORDER BY refused_at")

    async def owner(self, project: str) -> str | None:
        """The node that owns the project's partition, by etcd."""
        etcd = connections.etcd(Settings(etcd=(self.platform.environ["EVENLANE_ETCD"],)))
        try:
            return (await read_owners(etcd, "online", PARTITIONS)).get(self.partition(project))
        finally:
            await etcd.close()


@pytest.fixture
async def site(tmp_path: Path, monkeypatch):
    """A platform of two nodes and two gateways."""
    monkeypatch.setenv("EVENLANE_PARTITIONS", str(PARTITIONS))
    monkeypatch.setenv("EVENLANE_STORAGE", "memory")
    async with Platform(tmp_path, Ports(), lease_ttl="2s", prefix=guard()) as platform:
        for name, value in platform.environ.items():
            monkeypatch.setenv(name, value)
        yield Site(platform, PlatformSettings.of())
