"""Builds meter records, and a stream of them on a real server."""

import json

from nats.aio.client import Client

from evenlane.engine.core.records.meter_record import LaneRow, QueueRow, RecordHead, TopicRow, encode
from evenlane.engine.store.jetstream.stream_configs import dead_config, meter_config

SECOND = 1_000_000_000
METER = meter_config("online", "file", 1, 86_400)
DEAD = dead_config("online", "file", 1, 120, 86_400)
AT = 1_800_000_000 * SECOND


def head(number=1, **fields):
    return RecordHead(**{
        "node": "node-1", "run": 5, "number": number, "after": number - 1, "at": AT, "span": 10 * SECOND, "slots": 64,
        "priorities": ("high", "mid", "low"),
    } | fields)  # fmt: skip


def queue(lane=0, topic=0, group=0, band=0, counters=(0,) * 9, waited=None, waits=(), **gauges):
    values = [gauges.get(name, 0) for name in ("backlog", "oldest", "in_flight", "longest")]
    return QueueRow(lane, topic, group, band, counters, *values, waited or {}, waits)


def record(number, *, groups=3, node="node-1", at=None):
    """A record in which each queue has handled `number` messages."""
    fields = head(number, node=node, **({} if at is None else {"at": at}))
    queues = [queue(group=group, counters=(number, number, *[0] * 7)) for group in range(groups)]
    return encode(fields, [LaneRow(0, 1, 0, False)], [TopicRow("acme")], queues)


class Published:
    """A stream of meter records in the environment of `world`."""

    def __init__(self, world):
        self._world = world

    async def __aenter__(self):
        self._client = Client()
        await self._client.connect(self._world.servers.nats.url)
        await self.make()
        return self

    async def __aexit__(self, *_):
        await self._client.close()

    async def make(self, config=METER):
        request = json.dumps(config).encode()
        answer = await self._client.request(f"$JS.API.STREAM.CREATE.{config['name']}", request, timeout=30)
        assert "error" not in json.loads(answer.data)

    async def delete(self):
        await self._client.request("$JS.API.STREAM.DELETE.METER_online", b"", timeout=30)

    async def put(self, *bodies, subject="meter.online.node-1"):
        for body in bodies:
            await self._client.jetstream().publish(subject, body)
