"""Failures between producer and store: retries, and the error that a put raises in the end (K6)."""

import asyncio

import pytest

from evenlane.engine.core.ports import Full, Receipt, Refused
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import BacklogFull, EvenlaneError, NotAcknowledged, ProducerClosed, PutRefused
from evenlane.engine.producer.put import Put
from evenlane.engine.producer.tuning import ProducerTuning
from evenlane.engine.store.memory.server import MemoryServer
from tests.support.until import until


async def test_puts_with_lost_acknowledgements_are_stored_once(world):
    """Fault 14, L, K6: retries are bounded, no put is lost, and its id prevents a duplicate."""
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


async def test_subject_keeps_order_through_lost_connection(world):
    """K4, K6: the first put is sent again first, before puts made meanwhile."""
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


async def test_put_without_answer_is_retried_and_stored_once(world):
    async with world.producer(tuning=ProducerTuning(answer_s=0.05)) as producer:
        world.server.delay_acks()
        putting = asyncio.create_task(producer.put("acme", b"x", id="mine"))
        await until(lambda: len(world.store.tries) > 1)
        world.server.delay_acks(0)
        assert not (await putting).duplicate, "the first try stored it"
    assert 1 == len(world.stored())


async def test_late_refusal_of_earlier_try_is_ignored(world):
    """L: the second try is stored, and the refusal of the first one comes late."""
    async with world.producer(tuning=ProducerTuning(answer_s=0.05)) as producer:
        world.server.delay_acks()
        world.server.refuse("lanes.")
        putting = asyncio.create_task(producer.put("acme", b"x"))
        await until(lambda: world.store.tries)
        world.server.accept("lanes.")
        await until(world.stored)
        world.server.delay_acks(0)
        assert isinstance(await putting, Receipt)
    assert 1 == len(world.stored())


async def test_deleted_streams_are_created_again(world):
    async with world.producer() as producer:
        world.server = world.store.server = MemoryServer(clock=lambda: world.now)
        assert isinstance(await producer.put("acme", b"x"), Receipt)
    assert 1 == len(world.stored())


async def test_timeout_error_names_id_and_group_for_another_put(world):
    """K6: a timeout."""
    async with world.producer(timeout=1) as producer:
        world.server.delay_acks()
        with pytest.raises(NotAcknowledged) as error:
            await producer.put("acme", b"x", group=3)
        [message] = world.stored()
        own = h.value(message.headers, h.ID).removeprefix("acme:")
        assert "may or may not be stored" in str(error.value)
        assert f"if put again with id '{own}' and group 3 within 29 s, it is stored once" in str(error.value)
        world.server.delay_acks(0)
        assert (await producer.put("acme", b"x", group=3, id=own)).duplicate
    assert 1 == len(world.stored())


async def test_error_without_connection_says_that_nothing_is_stored(world):
    async with world.producer(timeout=0.1) as producer:
        world.server.disconnect()
        with pytest.raises(NotAcknowledged, match=r"was not sent within 0\.1 s and is not stored: there is no conn"):
            await producer.put("acme", b"x")


async def test_put_that_waits_for_window_has_same_timeout(world):
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
async def test_refusal_is_raised_without_retry(world, error, kind, sentence):
    world.server.refuse("lanes.", error)
    async with world.producer() as producer:
        with pytest.raises(kind, match=sentence):
            await producer.put("acme", b"x")
    assert 1 == len(world.store.tries)


async def test_closing_fails_waiting_and_later_puts(world):
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
    assert world.store.is_connected, "the producer doesn't close a store that it was given"


async def test_each_error_is_one_line(world):
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


async def test_errors_in_an_outage_name_the_lost_connection(world):
    async with world.producer(timeout=0.3, window_messages=4) as producer:
        world.server.disconnect()
        outcomes = await producer.put_many(Put("acme", b"%d" % n, key="k") for n in range(8))
    assert [NotAcknowledged] * 8 == [type(each) for each in outcomes]
    assert all("connection" in str(each) for each in outcomes), [str(each) for each in outcomes]
