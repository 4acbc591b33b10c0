"""Fault 23: payloads of any kind."""

from hashlib import sha256

import nats
import pytest

from evenlane.engine.core.message import copies
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import PayloadTooLarge
from tests.ledger.puts import one
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

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
    """The longest body that the producer takes for this message."""
    return b"\xff" * (MOST - len(h.encode({h.ID: f"acme:{own}", "order": order})))


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00\r\n", b"\xc3\x28", bytes(range(256)) * 100])
async def test_a_body_is_bytes_and_nothing_more(world, producer, body):
    await world.put(producer, [one("acme", "m", body=body)])
    await world.handled()
    assert {digest(body)} == {entry.digest for entry in world.entries()}


async def test_above_the_limit_the_producer_is_told_and_nothing_is_sent(world, producer):
    body = largest("acme-m", "fail 0") + b"x"
    with pytest.raises(PayloadTooLarge, match="takes at most 1,048,576, of which 8,192 are kept"):
        await producer.put("acme", body, id="acme-m", headers={"order": "fail 0"})
    await world.put(producer, [one("acme", "next")])
    await world.handled()
    assert ["acme-next"] == world.ids()


@pytest.mark.parametrize(("fails", "attempts"), [(0, [1]), (1, [1, 2]), (3, [1, 2, 3])])
async def test_a_message_at_the_limit_is_handled_retried_and_dead_lettered(world, producer, fails, attempts):
    """L, K2, K4: a copy has more headers than the message that was put, and room for them is kept."""
    order = f"fail {fails}"
    body = largest("acme-m", order)
    dead = await world.dead_letters()
    await world.put(producer, [one("acme", "m", order=order, body=body)])
    assert ["acme-m"] == list(world.acknowledged)

    async def ended() -> bool:
        return "acme-m" in {*world.ids(), *(await dead.ids())}

    await until(ended, 10, "the message at the limit to end")
    assert attempts == [entry.attempt for entry in world.entries() if entry.what == "begin"]
    assert {digest(body)} == {entry.digest for entry in world.entries()}
    assert [body] * (fails == 3) == [dead_letter.body for dead_letter in await dead.read()]


async def test_a_plain_client_may_use_the_servers_whole_limit(world, producer):
    """P11: the engine adds nothing to a message that is handled at the first attempt."""
    headers = {h.ID: "acme:acme-whole"}
    body = b"\x80" * (LIMIT - len(h.encode(headers)))
    client = await nats.connect(world.servers.nats.url)
    try:
        subject = await _subject_of(world, producer)
        await client.jetstream().publish(subject, body, headers=headers)
    finally:
        await client.close()
    await world.handled("acme-whole")
    assert digest(body) in {entry.digest for entry in world.entries()}


async def _subject_of(world, producer) -> str:
    """Where the producer puts this project's messages."""
    await world.put(producer, [one("acme", "first")])
    stream, _ = world.acknowledged["acme-first"]
    return f"lanes.online.{stream.rpartition('_')[2]}.acme.0.mid"
