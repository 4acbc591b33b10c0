"""P7, P12: messages made to end gateways, and consumers that somebody deletes, on real servers."""

import asyncio
from urllib.parse import urlsplit

import nats
import pytest
from nats.js.errors import NotFoundError

from examples.iot.control import announce
from examples.iot.ingress import CONSUMER, CONTROL, MQTT
from tests.support.until import until

pytestmark = pytest.mark.real

DEEP = b'{"x": ' + b"[" * 100_000


async def publish_raw(site, *lines: bytes) -> None:
    """Publish by NATS without a client that checks anything; return once the server has it."""
    address = urlsplit(site.settings.evenlane.nats[0])
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b'CONNECT {"verbose": false, "headers": true}\r\n' + b"".join(lines) + b"PING\r\n")
    async with asyncio.timeout(60):
        while await reader.readline() != b"PONG\r\n":
            continue
    writer.close()
    await writer.wait_closed()


def publication(subject: str, header: bytes) -> bytes:
    """The line of the protocol that publishes `{}` with a header."""
    headers = b"NATS/1.0%s\r\n\r\n" % header
    return b"HPUB %s %d %d\r\n%s{}\r\n" % (subject.encode(), len(headers), len(headers) + 2, headers)


async def test_message_that_cant_be_read_stops_no_gateway(site):
    """Nested too deeply, not UTF-8, a partition of 5,000 digits: each is stored, or refused with one sentence."""
    data, announcement = site.subject("data", "good"), site.subject("announce", "good")
    await site.device_sends("good", b'{"id": "before"}')
    await until(lambda: {"before"} == site.ids("good"))
    bodies = [b'{"id": "\xff"}', DEEP]
    for body in bodies:
        await site.publish_by_mqtt(data, body)
        await site.publish_by_mqtt(announcement, body)
        await site.publish(data, body)
        await site.publish(announcement, body)
    await site.publish_by_mqtt(f"handler.data.partitions.p{'9' * 5_000}.good.data", b"far")
    await site.publish_by_mqtt("handler.data.partitions.p\u0661.good.data", b"arabic")
    await publish_raw(
        site,
        b"PUB handler.data.partitions.p\xff 2\r\n{}\r\n",
        b"PUB handler.data.partitions.p1.\xff.data 2\r\n{}\r\n",
        *(publication(announcement, header) for header in (b" \xff\xff\xff", b" 409 Gone", b"\r\nStatus: x")),
    )
    refusals = await until(lambda: len(found := site.refusals()) == 11 and found)
    assert all("\n" not in reason and len(reason) < 400 for _, reason in refusals)

    for number in range(5):
        await site.device_sends("good", b'{"id": "after-%d"}' % number)
        await site.publish(data, b'{"id": "direct-%d"}' % number)
    await until(lambda: 15 == len(site.ids("good")))
    assert all(part.is_running for part in site.platform.gateways)
    printed = "".join(part.log.read_text() for part in site.platform.gateways)
    assert "Traceback" not in printed, printed


async def test_answer_that_cant_be_read_stops_no_operator(site):
    """Somebody publishes on the subject of answers while an operator waits for his."""
    client = await nats.connect(site.settings.evenlane.nats[0])

    async def disturb() -> None:
        while True:
            await client.publish(site.subject("response", "fresh"), b'{"project": "\xff"}')
            await client.flush()

    disturbing = asyncio.create_task(disturb())
    assert "open" == (await announce("fresh", site.settings)).state
    disturbing.cancel()
    await client.close()


async def test_consumers_that_somebody_deletes_are_created_again(site):
    """No gateway is started again for it."""
    await site.device_sends("good", b'{"id": "before"}')
    await until(lambda: {"before"} == site.ids("good"))
    client = await nats.connect(site.settings.evenlane.nats[0])
    for source in (MQTT, CONTROL):
        await client.jetstream().delete_consumer(source.stream, CONSUMER)

    async def are_there() -> bool:
        try:
            return all([await client.jetstream().consumer_info(each.stream, CONSUMER) for each in (MQTT, CONTROL)])
        except NotFoundError:
            return False

    await until(are_there)
    await client.close()
    await site.device_sends("good", b'{"id": "after"}')
    await site.device_sends("fresh", b'{"id": "announced"}')
    await until(lambda: ({"before", "after"}, {"announced"}) == (site.ids("good"), site.ids("fresh")))
