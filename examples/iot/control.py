"""What an operator does with a project: announce it, close it, and learn the answer."""

import time
from contextlib import suppress

import msgspec
import nats.errors
from nats.aio.subscription import Subscription

from evenlane import EvenlaneError, Producer
from examples.iot.connection import connect
from examples.iot.ingress import STREAM
from examples.iot.messages import Announcement, Answer, Unreadable, decode
from examples.iot.settings import PlatformSettings

_ASK_AGAIN_S = 2.0
_GIVE_UP_S = 30.0


async def partition_of(project: str) -> int:
    """Return the project's partition. Raises InvalidName, Unreachable."""
    async with Producer() as producer:
        return producer.home_partition(project)


async def announce(project: str, settings: PlatformSettings, *, qps: float | None = None) -> Answer:
    """Register a project, or open it again, and return the owner's answer. May be repeated at any time.

    Raises InvalidName, Unreachable; EvenlaneError without an answer.
    """
    partition = await partition_of(project)
    body = msgspec.json.encode(Announcement(project, qps=qps))
    return await _ask(project, partition, "announce", body, settings)


async def close(project: str, settings: PlatformSettings) -> Answer:
    """Close a project, and return the answer. May be repeated at any time. Raises what `announce` raises."""
    return await _ask(project, await partition_of(project), "close", b"", settings)


async def _ask(project: str, partition: int, name: str, body: bytes, settings: PlatformSettings) -> Answer:
    subjects = settings.subjects
    wanted = ("closed", "refused") if name == "close" else ("open", "refused")
    connection = await connect(settings, "iot control")
    try:
        answers = await connection.subscribe(subjects.format("response", partition, project))
        end = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < end:
            await connection.jetstream().publish(subjects.format(name, partition, project), body, stream=STREAM)
            if answer := await _receive(answers, wanted):
                return answer
    finally:
        await connection.close()
    raise EvenlaneError(
        f"nobody has answered for {project} on partition {partition} within {_GIVE_UP_S:g} s; what was asked stays in"
        " the stream, and is done once a gateway and a node run"
    )


async def _receive(answers: Subscription, wanted: tuple[str, ...]) -> Answer | None:
    """Return the first answer with such a state; None if there is none for a while."""
    end = time.monotonic() + _ASK_AGAIN_S
    while (left := end - time.monotonic()) > 0:
        try:
            received = await answers.next_msg(left)
        except nats.errors.TimeoutError:
            return None
        with suppress(Unreadable):  # anybody may publish there
            answer = decode(received.data, Answer)
            if answer.state in wanted:
                return answer
    return None
