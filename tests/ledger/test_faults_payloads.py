"""Tests of fault 23: payloads of any kind and size."""

from hashlib import sha256

import nats
import pytest

from evenlane.engine.core.message import copies
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import PayloadTooLarge
from tests.ledger.puts import one
from tests.support.until import until

pytestmark = pytest.mark.real

LIMIT = 1 << 20  # of the server, for headers and body together
MOST = LIMIT - copies.room(LIMIT)  # of the producer


@pytest.fixture
async def producer(world):
    await world.node()
    await world.topics("acme")
    return await world.producer()


def digest(body: bytes) -> str:
    return sha256(body).hexdigest()[:16]


def largest(own: str, order: str) -> bytes:
    """The longest body that the producer accepts for this message."""
    return b"\xff" * (MOST - len(h.encode({h.ID: f"acme:{own}", "order": order})))


def attempts_of(world, own: str) -> list[tuple[str, int]]:
    return [(entry.digest, entry.attempt) for entry in world.entries() if entry.id == own and entry.what == "begin"]


async def test_any_body_arrives_unchanged(world, producer):
    """Fault 23, P11: bodies of any bytes from a producer, and one of a plain client that uses the server's whole limit:
    the engine adds nothing to a message that is handled at the first attempt.
    """
    bodies = [b"", b"\xff\xfe\x00\r\n", b"\xc3\x28", bytes(range(256)) * 100]
    puts = [one("acme", f"m{number}", body=body) for number, body in enumerate(bodies)]
    await world.put(producer, puts)
    await world.handled()
    headers = {h.ID: "acme:acme-whole"}
    bodies.append(b"\x80" * (LIMIT - len(h.encode(headers))))
    stream, _ = world.acknowledged["acme-m0"]
    client = await nats.connect(world.servers.nats.url)
    try:
        subject = f"lanes.online.{stream.rpartition('_')[2]}.acme.0.mid"
        await client.jetstream().publish(subject, bodies[-1], headers=headers)
    finally:
        await client.close()
    await world.handled("acme-whole")
    ids = [*(put.id for put in puts), "acme-whole"]
    assert [[(digest(body), 1)] for body in bodies] == [attempts_of(world, own) for own in ids]


async def test_message_at_the_limit_is_handled_retried_and_dead_lettered(world, producer):
    """L, K2, K4: a copy has more headers than the message that was put, and room for them is kept. Above the limit the
    producer raises, and sends nothing.
    """
    orders = {"acme-well": "fail 0", "acme-retried": "fail 1", "acme-dead": "fail 3"}
    bodies = {own: largest(own, order) for own, order in orders.items()}
    with pytest.raises(PayloadTooLarge, match="takes at most 1,048,576, of which 8,192 are kept"):
        await producer.put("acme", bodies["acme-well"] + b"x", id="acme-well", headers={"order": "fail 0"})
    dead = await world.dead_letters()
    await world.put(
        producer, [one("acme", own.removeprefix("acme-"), order=orders[own], body=body) for own, body in bodies.items()]
    )
    assert orders.keys() == world.acknowledged.keys()

    async def ended() -> bool:
        return orders.keys() <= {*world.ids(), *(await dead.ids())}

    await until(ended, 20, "the messages at the limit to end")
    for own, attempts in {"acme-well": [1], "acme-retried": [1, 2], "acme-dead": [1, 2, 3]}.items():
        assert [(digest(bodies[own]), attempt) for attempt in attempts] == attempts_of(world, own)
    assert [("acme-dead", bodies["acme-dead"])] == [(each.id, each.body) for each in await dead.read()]
