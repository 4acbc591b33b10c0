"""The application of the nodes: stores the data of devices, and answers registrations.

    evenlane run examples.iot.handlers:app

A registration and a close are messages in the project's own first group, which is on the partition `sha256(project) mod
P`. So exactly the owner of that partition handles them, they wait on disk while there is none, and the next owner
handles them if one dies. The truth about a project is its topic in etcd; an answer only repeats it.
"""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

import msgspec
from nats.aio.client import Client

from evenlane import Evenlane, Message, RevisionConflict, Topics, UnknownProject
from examples.iot import messages
from examples.iot.connection import connect
from examples.iot.database import Data, Database
from examples.iot.messages import Announcement, Answer, Close
from examples.iot.settings import PlatformSettings


class Node(NamedTuple):
    """What the handlers of a node share."""

    settings: PlatformSettings
    connection: Client
    topics: Topics
    database: Database

    async def answer(self, message: Message) -> None:
        """Answer the gateways: whether the project is open, and who is responsible for it."""
        try:
            state = (await self.topics.get(message.project)).state
        except UnknownProject:
            state = "deleted"
        is_open = state in ("active", "paused")
        answer = Answer(message.project, "open" if is_open else "closed", message.partition, message.node)
        subject = self.settings.subjects.format("response", message.partition, message.project)
        await self.connection.publish(subject, msgspec.json.encode(answer))
        await self.connection.flush()


async def lifespan(_app: Evenlane) -> AsyncIterator[Node]:
    settings = PlatformSettings.of()
    async with AsyncExitStack() as opened:
        connection = await connect(settings, "iot handlers")
        opened.push_async_callback(connection.close)
        topics = await opened.enter_async_context(Topics())
        database = await opened.enter_async_context(Database(settings.database))
        yield Node(settings, connection, topics, database)


app = Evenlane(lifespan=lifespan)


@app.handler(kind=messages.REGISTER)
async def register(message: Message[Announcement]) -> None:
    """Answer. Handled twice, it answers twice, and nothing else happens."""
    await message.state.answer(message)


@app.handler(kind=messages.CLOSE)
async def close(message: Message[Close]) -> None:
    """Drain the topic: further puts are refused, and the waiting data is still handled.

    A close that arrives again after the project was opened again changes nothing: the topic has another revision.
    """
    node: Node = message.state
    with suppress(RevisionConflict, UnknownProject):
        await node.topics.drain(message.project, if_revision=message.data.revision, by=message.node)
    await node.answer(message)


@app.handler
async def store(message: Message) -> None:
    """Store the data of a device; it is on disk when this returns."""
    database: Database = message.state.database
    await database.store(Data(message.project, message.id, message.body, time.time(), message.node))
