"""The contract of the request bus, for each adapter of the store (E15)."""

import asyncio
import itertools

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.request_bus import NO_RESPONDERS
from evenlane.engine.errors import ConfigError
from tests.support.until import until

_fresh = itertools.count()


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.real)])
def settings(request):
    if request.param == "memory":
        return Settings(store=(f"memory://bus-{next(_fresh)}",))
    return Settings(store=(request.getfixturevalue("nats_server").url,))


@pytest.fixture
async def buses(settings):
    """Two buses of one store."""
    both = [connections.bus(settings, name) for name in ("a", "b")]
    for each in both:
        await each.open()
    yield both
    for each in both:
        await each.close()


@pytest.fixture
def subject():
    return f"ask.t{next(_fresh)}"


class Received(list):
    def take(self, subject, reply, headers, body):
        self.append((subject.decode(), reply.decode(), bytes(body)))


async def flushed(bus, subject):
    """Wait until earlier messages are delivered: a message of its own comes after them."""
    echo = Received()
    sid = bus.listen(f"{subject}.echo", echo.take)
    bus.send(f"{subject}.echo", b"")
    await until(lambda: echo)
    bus.unlisten(sid)


async def test_listeners_receive_messages_once_in_order(buses, subject):
    a, b = buses
    received, also = Received(), Received()
    a.listen(f"{subject}.*", received.take)
    b.listen(f"{subject}.x", also.take)
    await flushed(a, subject)
    await flushed(b, subject)
    received.clear()
    for number in range(3):
        b.send(f"{subject}.x", b"%d" % number, reply="_INBOX.here")
    b.send(f"{subject}.x.y", b"another subject")
    await until(lambda: len(received) == len(also) == 3)
    assert [(f"{subject}.x", "_INBOX.here", b"%d" % number) for number in range(3)] == received == also


async def test_reply_reaches_requester(buses, subject):
    a, b = buses
    answers = Received()
    a.listen(subject, lambda _subject, reply, _headers, body: a.send(reply.decode(), body + b"!"))
    b.listen(f"_INBOX.{subject}", answers.take)
    await flushed(a, subject)
    b.send(subject, b"who", reply=f"_INBOX.{subject}")
    await until(lambda: answers)
    assert [(f"_INBOX.{subject}", "", b"who!")] == answers


async def test_request_without_listener_gets_no_responders(buses, subject):
    _, b = buses
    answer = asyncio.get_running_loop().create_future()
    b.listen(f"_INBOX.{subject}", lambda *parts: answer.set_result(parts[2]))
    b.send(subject, b"who", reply=f"_INBOX.{subject}")
    assert (await asyncio.wait_for(answer, 60)).startswith(NO_RESPONDERS)


async def test_nothing_is_received_after_unlisten_or_close(buses, settings, subject):
    a, b = buses
    received, closed = Received(), Received()
    a.unlisten(a.listen(subject, received.take))
    other = connections.bus(settings, "c")
    await other.open()
    other.listen(subject, closed.take)
    await other.close()
    await flushed(a, subject)
    b.send(subject, b"x")
    await flushed(b, subject)
    await flushed(a, subject)
    assert [] == received == closed


async def test_closed_bus_refuses_to_send(settings, subject):
    bus = connections.bus(settings, "c")
    await bus.open()
    await bus.close()
    with pytest.raises(Disconnected):
        bus.send(subject, b"x")


def test_memory_store_is_no_source_for_reports():
    with pytest.raises(ConfigError, match="one process"):
        connections.source(Settings(store=("memory://",)), "report")
