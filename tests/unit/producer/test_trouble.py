"""What goes wrong on a put's way to the store, and what is said of it (K6)."""

import asyncio

import pytest

from evenlane.engine.core.ports import Full, Receipt, Refused
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import BacklogFull, EvenlaneError, NotAcknowledged, ProducerClosed, PutRefused
from evenlane.engine.producer.put import Put
from evenlane.engine.producer.tuning import Tuning
from tests.support.until import until


async def test_a_lost_acknowledgement_is_asked_for_again_and_the_message_is_stored_once(world):
    """Fault 14, L, K6: retries are bounded, none is lost, and the id keeps it single."""
    async with world.producer() as producer:
        world.server.delay_acks()
        putting = asyncio.create_task(producer.put_many(Put("acme", b"%d" % n, group=n % 8) for n in range(40)))
        await until(lambda: len(world.stored()) == 40)
        world.server.disconnect()
        world.server.delay_acks(0)
        late = asyncio.create_task(producer.put("acme", b"late", group=0))
        await asyncio.sleep(0)
        world.server.reconnect()
        outcomes = await putting
        assert isinstance(await late, Receipt)
    assert [False] * 40 == [outcome.duplicate for outcome in outcomes]
    assert 41 == len(world.stored())


async def test_messages_of_one_subject_keep_their_order_through_a_lost_connection(world):
    """K4, K6: what was put first is sent again first, before what was put meanwhile."""
    async with world.producer() as producer:
        world.server.disconnect()
        putting = [
            asyncio.create_task(producer.put_many(Put("acme", b"%d" % n, key="k") for n in range(p, p + 10)))
            for p in range(0, 100, 10)
        ]
        await asyncio.sleep(0)
        world.server.reconnect()
        await asyncio.gather(*putting)
    assert [b"%d" % number for number in range(100)] == [message.body for message in world.stored()]


async def test_silence_is_asked_again_and_the_late_answer_does_no_harm(world):
    async with world.producer(tuning=Tuning(answer_s=0.05)) as producer:
        world.server.delay_acks()
        putting = asyncio.create_task(producer.put("acme", b"x", id="mine"))
        await until(lambda: next(iter(producer._pipeline._sender._in_flight), None) is not None)
        await until(lambda: any(sending.tries > 1 for sending in producer._pipeline._sender._in_flight))
        world.server.delay_acks(0)
        assert not (await putting).duplicate, "the first try brought it there"
    assert 1 == len(world.stored())


async def test_a_no_to_a_try_that_was_given_up_is_not_the_last_word(world):
    """L: the second try is stored, and the first one's refusal comes late."""
    async with world.producer(tuning=Tuning(answer_s=0.05)) as producer:
        world.server.delay_acks()
        world.server.refuse("lanes.")
        putting = asyncio.create_task(producer.put("acme", b"x"))
        await until(lambda: producer._pipeline._sender._in_flight)
        world.server.accept("lanes.")
        await until(world.stored)
        world.server.delay_acks(0)
        assert isinstance(await putting, Receipt)
    assert 1 == len(world.stored())


async def test_streams_that_are_gone_are_made_again(world):
    async with world.producer() as producer:
        world.server._streams.clear()
        assert isinstance(await producer.put("acme", b"x"), Receipt)
    assert 1 == len(world.stored())


async def test_after_the_timeout_it_says_that_it_does_not_know_and_what_to_do(world):
    """K6: a timeout."""
    async with world.producer(timeout=0.2) as producer:
        world.server.delay_acks()
        with pytest.raises(NotAcknowledged) as error:
            await producer.put("acme", b"x", group=3)
        [message] = world.stored()
        own = h.value(message.headers, h.ID).removeprefix("acme:")
        assert "may or may not be stored" in str(error.value)
        assert f"put again with id '{own}' and group 3 within 29.8 s it is stored once" in str(error.value)
        world.server.delay_acks(0)
        assert (await producer.put("acme", b"x", group=3, id=own)).duplicate
    assert 1 == len(world.stored())


async def test_without_a_connection_it_says_that_nothing_is_stored(world):
    async with world.producer(timeout=0.1) as producer:
        world.server.disconnect()
        with pytest.raises(NotAcknowledged, match=r"was not sent within 0\.1 s and is not stored: there is no conn"):
            await producer.put("acme", b"x")


async def test_who_waits_for_room_has_the_same_timeout(world):
    async with world.producer(timeout=0.1, window_messages=1) as producer:
        world.server.delay_acks()
        outcomes = await asyncio.gather(*(producer.put("acme", b"x") for _ in range(2)), return_exceptions=True)
    assert [NotAcknowledged] * 2 == [type(outcome) for outcome in outcomes]
    assert "was not sent and is not stored" in str(outcomes[1])


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (Full("maximum messages exceeded"), BacklogFull, "is not stored, there is no room: maximum messages"),
        (Refused("no"), PutRefused, "is not stored, the store refused it: no"),
    ],
)
async def test_a_definite_no_is_told_at_once_and_not_asked_again(world, error, kind, sentence):
    world.server.refuse("lanes.", error)
    async with world.producer() as producer:
        with pytest.raises(kind, match=sentence):
            await producer.put("acme", b"x")


async def test_a_producer_that_is_closed_says_so_and_closing_ends_what_waits(world):
    producer = world.producer()
    with pytest.raises(ProducerClosed, match="put inside `async with Producer"):
        await producer.put("acme", b"x")
    async with producer:
        world.server.delay_acks()
        putting = asyncio.create_task(producer.put("acme", b"x"))
        many = asyncio.create_task(producer.put_many([Put("acme", b"x")] * 10_000))
        await until(lambda: len(world.stored()) > 1)
    with pytest.raises(NotAcknowledged, match=r"may or may not be stored.*\(the producer was closed\)"):
        await putting
    kinds = {type(outcome) for outcome in await many}
    assert {NotAcknowledged, ProducerClosed} >= kinds
    assert NotAcknowledged in kinds
    with pytest.raises(ProducerClosed):
        await producer.put_many([Put("acme", b"x")])
    await producer.close()
    assert world.store.connected, "a store that was given isn't the producer's to close"


async def test_every_error_is_one_line(world):
    async with world.producer() as producer:
        outcomes = await producer.put_many(
            [
                Put("a\nb", b""),
                Put("nobody", b""),
                Put("acme", b"", priority="x\ny"),
                Put("acme", b"", id="\n"),
            ]
        )
    assert all(isinstance(outcome, EvenlaneError) and "\n" not in str(outcome) for outcome in outcomes)
