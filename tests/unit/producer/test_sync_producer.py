"""A producer for programs without an event loop: threads, closing, interrupts (P8)."""

import asyncio
import signal
import threading
from dataclasses import dataclass

import pytest

from evenlane import ConfigError, Put, Receipt
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.errors import ProducerClosed, UnknownProject
from evenlane.engine.producer.sync_producer import SyncProducer
from tests.support.producer_world import CLUSTER_CONFIG, ProducerWorld


@dataclass
class Order:
    number: int


@pytest.fixture
def world() -> ProducerWorld:
    made = ProducerWorld()
    asyncio.run(made.store.open())
    return made


@pytest.fixture
def producer(world):
    with make(world) as made:
        yield made


def make(world, **more) -> SyncProducer:
    given = {"settings": Settings(env=world.env), "store": world.store, "topics": world.topics, "facts": CLUSTER_CONFIG}
    return SyncProducer(**given | more)


def bodies(world) -> list[bytes]:
    return sorted(bytes(each.body) for each in world.stored())


def test_put_returns_a_receipt_and_raises_the_errors_of_producer(world, producer):
    assert isinstance(producer.put("acme", b"1", priority="high", key="k", headers={"X": "1"}), Receipt)
    assert isinstance(producer.put("acme", Order(2)), Receipt)
    with pytest.raises(UnknownProject, match="has no topic"):
        producer.put("nobody", b"x")
    assert bodies(world) == [b"1", b'{"number":2}']


def test_arguments_are_checked_before_the_first_put():
    with pytest.raises(ConfigError, match="timeout -1 is not a number above 0"):
        SyncProducer(store="memory://checked", timeout=-1)


def test_first_put_opens(world):
    producer = make(world)
    assert isinstance(producer.put("acme", b"1"), Receipt)
    producer.close()
    producer.close()
    with pytest.raises(ProducerClosed, match="this producer is closed"):
        producer.put("acme", b"2")


def test_put_many_returns_outcomes_in_order(world, producer):
    puts = [Put("acme", Order(number)) if number % 7 else Put("nobody", b"x") for number in range(2_000)]
    outcomes = producer.put_many(iter(puts))
    assert [type(each) for each in outcomes] == [Receipt if number % 7 else UnknownProject for number in range(2_000)]
    assert len(world.stored()) == sum(put.project == "acme" for put in puts)


def test_put_each_reads_and_reports_in_the_calling_thread(producer):
    threads = set()

    def puts():
        for number in range(600):
            threads.add(threading.current_thread())
            yield Put("acme", b"%d" % number)

    producer.put_each(puts(), lambda _number, _outcome: threads.add(threading.current_thread()))
    assert threads == {threading.current_thread()}


@pytest.mark.parametrize("project", ["acme", "nobody"])
def test_error_of_done_ends_put_each(producer, project):
    def fail(_number, _outcome):
        raise LookupError("row is gone")

    with pytest.raises(LookupError, match="row is gone"):
        producer.put_each((Put(project, b"x") for _ in range(5_000)), fail)
    assert isinstance(producer.put("acme", b"still works"), Receipt)


def test_error_of_the_source_ends_put_each(producer):
    def puts():
        yield Put("acme", b"1")
        raise LookupError("row is gone")

    with pytest.raises(LookupError, match="row is gone"):
        producer.put_many(puts())
    assert isinstance(producer.put("acme", b"still works"), Receipt)


def test_many_threads_share_a_producer(world, producer):
    def put(number):
        for each in range(50):
            producer.put("acme", b"%d" % (100 * number + each))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bodies(world) == sorted(b"%d" % (100 * number + each) for number in range(8) for each in range(50))


def test_interrupted_put_leaves_the_producer_usable(producer):
    def puts():
        yield Put("acme", b"1")
        signal.raise_signal(signal.SIGINT)
        yield Put("acme", b"2")

    with pytest.raises(KeyboardInterrupt):
        producer.put_many(puts())
    assert isinstance(producer.put("acme", b"3"), Receipt)


async def test_it_works_where_an_event_loop_runs(world):
    with make(world) as producer:
        assert isinstance(producer.put("acme", b"1"), Receipt)
