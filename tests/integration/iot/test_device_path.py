"""P7: devices, gateways, the queue and data handlers, as processes on real servers."""

import asyncio

import aiomqtt
import msgspec
import pytest
from nats.js.errors import APIError

from evenlane import InvalidName, Producer, Topics
from examples.iot.control import announce, close
from examples.iot.messages import CLOSE, Announcement, Close
from examples.iot.subjects import to_topic
from tests.integration.iot.conftest import PARTITIONS
from tests.support.until import until

pytestmark = pytest.mark.real


def reading(message_id: str) -> bytes:
    return b'{"id": "%s", "celsius": 21.5}' % message_id.encode()


async def test_project_is_announced_fed_and_closed(site):
    """P7: the owner of the project's partition answers, data flows, and a close drains it."""
    # a device is enough: the gateway that sees it announces the project
    await site.device_sends("acme", reading("first"))
    await site.device_sends("acme", reading("unacknowledged"), qos=0)
    await site.publish(site.subject("data", "acme"), reading("by-nats"))
    await until(lambda: {"first", "unacknowledged", "by-nats"} == site.ids("acme"))

    # without an id of the device's own it is stored once, too
    await site.device_sends("plain", b"21.5")
    await site.device_sends("plain", reading("last"))
    await until(lambda: {b"21.5", reading("last")} <= {body for (body,) in site.rows("SELECT body FROM data")})
    assert 2 == len(site.ids("plain"))

    # the same project from two gateways: one registration, and an answer to each
    asked = [msgspec.json.encode(Announcement("acme", name)) for name in ("gateway-x", "gateway-y")]
    async with Topics() as topics:
        before = (await topics.get("acme")).revision
        async with site.answers("acme") as next_answer:
            for body in asked:
                await site.publish(site.subject("announce", "acme"), body)
            answers = [await next_answer() for _ in asked]
        assert before == (await topics.get("acme")).revision
    owner = await site.owner("acme")
    assert [("open", site.partition("acme"), owner)] * 2 == [
        (each.state, each.partition, each.node) for each in answers
    ]

    # what was published before the close is stored, and what comes after it is refused
    names = {f"n{number}" for number in range(50)}
    await asyncio.gather(*(site.publish(site.subject("data", "acme"), reading(name)) for name in names))
    assert "closed" == (await close("acme", site.settings)).state
    await until(lambda: names < site.ids("acme"))
    await site.device_sends("acme", reading("too-late"))
    [(subject, reason)] = await until(site.refusals)
    assert site.subject("data", "acme") == subject
    assert "project acme is closed and takes no data: announce it to open it again" == reason
    assert "closed" == (await close("acme", site.settings)).state

    # opened again, it takes data; the close from before, delivered a second time, changes nothing
    assert "open" == (await announce("acme", site.settings)).state
    async with Producer() as producer, site.answers("acme") as next_answer:
        stale = msgspec.json.encode(Close(before))
        await producer.put("acme", stale, group=0, priority="high", headers={"kind": CLOSE}, id="stale")
        assert "open" == (await next_answer()).state
    await site.device_sends("acme", reading("again"))
    await until(lambda: "again" in site.ids("acme"))
    assert "too-late" not in site.ids("acme")


async def test_bad_input_is_one_sentence_and_touches_no_other_project(site):
    """P7, P12: names, partitions, bodies and sizes that can't be; nothing acknowledged goes without a trace."""
    await site.device_sends("good", reading("before"))
    with pytest.raises(InvalidName, match="project 'a b' is not valid"):
        await announce("a b", site.settings)
    foreign = site.settings.subjects.format("announce", (site.partition("good") + 1) % PARTITIONS)
    await site.publish_by_mqtt(site.subject("announce", "good"), b'{"project": "a.b"}')
    for subject, body in (
        (foreign, b'{"project": "good"}'),
        (foreign, b"good"),
        (site.subject("announce", "nan"), b'{"project": "nan", "qps": -1}'),
        (site.subject("close", "never"), b""),
    ):
        await site.publish(subject, body)
    with pytest.raises(APIError, match="project '_bad' is not valid"):
        await site.publish(site.subject("data", "_bad"), reading("of-a-bad-name"))
    # it fits into MQTT, but leaves no room for the headers of a retry
    edge = b'{"id": "edge", "x": "' + b"x" * 1_045_000 + b'"}'
    await site.device_sends("good", edge)
    refusals = await until(lambda: len(found := site.refusals()) == 7 and found)
    sentences = sorted(reason for _, reason in refusals)
    for number, part in enumerate(
        (
            "project '_bad' is not valid",
            "project 'a.b' is not valid",
            f"project good is on partition {site.partition('good')}, not on",
            "project never isn't registered, so it can't be closed",
            'the announcement isn\'t JSON such as {"project": "acme"}',
            "the message for good has 1,045,",
            "topic nan: qps",
        )
    ):
        assert part in sentences[number], sentences
        assert "\n" not in sentences[number]
    assert [(edge,)] == site.rows("SELECT body FROM refused WHERE length(body) > 1000")

    await _send_too_much(site, "good")
    log = (site.platform.folder / "nats.log").read_text()
    assert '"greedy" - maximum payload exceeded: 2000' in log
    await site.device_sends("good", reading("after"))
    await until(lambda: {"before", "after"} == site.ids("good"))
    assert refusals == site.refusals()
    async with Topics() as topics:
        assert ["good"] == [each.project for each in await topics.list()]


async def _send_too_much(site, project):
    """Send 2 MB as a device does; it isn't acknowledged."""
    host, port = site.settings.mqtt_address
    with pytest.raises(aiomqtt.MqttError):
        async with aiomqtt.Client(host, port, identifier="greedy") as device:
            await device.publish(to_topic(site.subject("data", project)), b"x" * 2_000_000, qos=1, timeout=1)
