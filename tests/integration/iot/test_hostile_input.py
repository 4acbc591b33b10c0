"""P7, P12: messages made to end gateways, and consumers that somebody deletes, on real servers."""

import asyncio
from urllib.parse import urlsplit

import nats
import pytest
from nats.js.errors import NotFoundError

from examples.iot.ingress import CONSUMER, CONTROL, MQTT
from tests.support.until import until

pytestmark = pytest.mark.real

DEEP = b'{"x": ' + b"[" * 100_000


async def publish_raw(site, *lines: bytes) -> None:
    """Publish by NATS without a client that checks anything; return once the server has it."""
    address = urlsplit(site.settings.nats)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b'CONNECT {"verbose": false, "headers": true}\r\n' + b"".join(lines) + b"PING\r\n")
    async with asyncio.timeout(60):
        while await reader.readline() != b"PONG\r\n":
            continue
    writer.close()
    await writer.wait_closed()


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
        b"HPUB %s 16 18\r\nNATS/1.0 \xff\xff\xff\r\n\r\n{}\r\n" % announcement.encode(),
    )
    refusals = await until(lambda: len(found := site.refusals()) == 9 and found)
    assert all("\n" not in reason and len(reason) < 400 for _, reason in refusals)

    for number in range(5):
        await site.device_sends("good", b'{"id": "after-%d"}' % number)
        await site.publish(data, b'{"id": "direct-%d"}' % number)
    await until(lambda: 15 == len(site.ids("good")))
    assert all(part.is_running for part in site.platform.gateways)
    printed = "".join(part.log.read_text() for part in site.platform.gateways)
    assert "Traceback" not in printed, printed


async def test_consumers_that_somebody_deletes_are_created_again(site):
    """No gateway is started again for it."""
    await site.device_sends("good", b'{"id": "before"}')
    await until(lambda: {"before"} == site.ids("good"))
    client = await nats.connect(site.settings.nats)
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
