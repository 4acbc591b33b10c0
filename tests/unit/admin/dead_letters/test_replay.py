"""Replay of dead letters on the store in memory (K4, X5, E13)."""

import asyncio
import math
from collections import Counter

import pytest

from evenlane.engine.admin.dead_letters.client import DeadLetterClient, NoSuchDeadLetter
from evenlane.engine.admin.replays.replay import IN_FLIGHT
from evenlane.engine.base import names
from evenlane.engine.core.ports import Full, Lost, Refused
from evenlane.engine.errors import TopicDraining, UnknownProject
from evenlane.quota.topics.topic import delete
from evenlane.ring.hashing import partition_of
from tests.support.dead_letter_world import DeadLetterWorld
from tests.support.dead_letters import bury
from tests.support.producer_world import CLUSTER_CONFIG
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time

FAST = 1e6


def client(place, timeout_s):
    return DeadLetterClient(place.store, place.env, place.topics, CLUSTER_CONFIG, timeout_s=timeout_s)


async def test_replayed_dead_letter_is_removed(place):
    await place.fill(3)
    result = await place.dead_letters.replay("acme", 2)
    assert (1, [], "") == (result.replayed, result.failed, result.stopped)
    assert ([1, 3], {"m1": 1}) == (place.dead(), place.queued())
    with pytest.raises(NoSuchDeadLetter, match="no longer exists"):
        await place.dead_letters.replay("acme", 2)


async def test_all_dead_letters_of_the_project_are_replayed_in_order(place):
    for number in range(600):
        await bury(place.store, f"m{number}")
        await bury(place.store, f"theirs{number}", project="other")
    result = await place.dead_letters.replay("acme", rate=FAST)
    assert (600, 600) == (result.replayed, len(place.dead()))
    [lane] = {message.subject for message in place.stored()}
    assert [f"m{number}".encode() for number in range(600)] == [message.body for message in place.stored()]
    assert ".acme." in lane


async def test_message_that_dies_again_is_not_replayed_in_a_loop(place, monkeypatch):
    await place.fill(5)
    delete = place.store.delete

    async def dies_again(lane, sequence):
        await delete(lane, sequence)
        await bury(place.store, f"again{sequence}")

    monkeypatch.setattr(place.store, "delete", dies_again)
    assert 5 == (await place.dead_letters.replay("acme", rate=FAST)).replayed
    assert [6, 7, 8, 9, 10] == place.dead()


@in_virtual_time
async def test_dead_letter_that_was_not_removed_is_stored_once():
    """D: the next replay puts it again, and the store drops duplicates."""

    async def lost(*_):
        raise Lost("NATS did not answer in time")

    async with DeadLetterWorld() as place:
        await place.dead_letters.remove(await bury(place.store, "gone"))
        await place.fill(3)
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(place.store, "delete", lost)
            result = await client(place, timeout_s=0.3).replay("acme", rate=FAST)
        assert 0 == result.replayed
        assert "its message is back in its queue, but the dead letter can't be removed" in result.failed[0].error
        assert result.stopped
        again = await place.dead_letters.replay("acme", rate=FAST)
        assert (3, [], {"m0": 1, "m1": 1, "m2": 1}) == (again.replayed, place.dead(), place.queued())


async def test_concurrent_replays_store_each_message_once(place):
    """D."""
    await place.fill(500)
    another = DeadLetterClient(place.store, place.env, place.topics, CLUSTER_CONFIG)
    results = await asyncio.gather(place.dead_letters.replay("acme", rate=2_000), another.replay("acme", rate=3_000))
    assert [[], []] == [result.failed for result in results]
    assert ([], {f"m{number}": 1 for number in range(500)}) == (place.dead(), place.queued())


async def test_dead_letter_stays_until_its_message_is_acknowledged(place):
    """L."""
    await place.fill(3)
    place.server.delay_acks(math.inf)
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST))
    await until(lambda: len(place.stored()) == 3)
    assert [1, 2, 3] == place.dead()
    place.server.delay_acks(0)
    assert 3 == (await replaying).replayed
    assert [] == place.dead()


async def test_cancelled_replay_waits_for_puts_in_flight(place):
    """L, D."""
    await place.fill(50)
    place.server.delay_acks(0.1)
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=200))
    await until(place.queued)
    replaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replaying
    left, queued = place.dead(), place.queued()
    assert 0 < len(left) < 50
    assert 50 == len(left) + len(queued)
    place.server.delay_acks(0)
    await place.dead_letters.replay("acme", rate=FAST)
    assert {f"m{number}": 1 for number in range(50)} == place.queued()


@in_virtual_time
async def test_missing_acknowledgement_stops_the_replay():
    """L: the messages may or may not be stored, and all dead letters stay."""
    async with DeadLetterWorld() as place:
        await place.fill(5)
        place.server.delay_acks(math.inf)
        result = await client(place, timeout_s=0.3).replay("acme", rate=FAST)
        assert (0, 5) == (result.replayed, len(result.failed))
        assert "may or may not be stored" in result.stopped
        assert [1, 2, 3, 4, 5] == place.dead()
        place.server.delay_acks(0)
        assert 5 == (await place.dead_letters.replay("acme", rate=FAST)).replayed
        assert {1} == set(place.queued().values())


@in_virtual_time
async def test_replay_continues_after_an_outage():
    async with DeadLetterWorld() as place:
        await place.fill(300)
        place.server.delay_acks(0.1)
        replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST))
        await until(place.queued)
        place.server.disconnect()
        await asyncio.sleep(5)
        assert not replaying.done()
        place.server.reconnect()
        result = await replaying
        assert (300, [], "") == (result.replayed, result.failed, result.stopped)
        assert {f"m{number}": 1 for number in range(300)} == place.queued()


async def test_full_queue_delays_only_its_own_dead_letters(place):
    """K6: the progress says why."""
    await place.fill(3)
    await bury(place.store, "high", priority="high")
    mid = lane_subject("mid")
    place.server.refuse(mid, Full("maximum messages per subject exceeded"))
    progress = []
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST, on_progress=progress.append))
    await until(lambda: progress and progress[-1].replayed == 1 and progress[-1].waits)
    assert "maximum messages per subject exceeded" in progress[-1].waits
    assert {"high": 1} == place.queued()
    await place.dead_letters.drop("acme", 2)  # it must not be replayed after that
    place.server.accept(mid)
    result = await replaying
    assert (3, [], "") == (result.replayed, result.failed, result.stopped)
    assert ({"high": 1, "m0": 1, "m2": 1}, []) == (place.queued(), place.dead())
    assert "" == progress[-1].waits


async def test_replay_waits_for_room_within_max_backlog(place):
    """K6: as a producer does."""
    place.topics.set("acme", '{"qps": 400, "max_backlog": 3}')
    await place.fill(5)
    progress = []
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST, on_progress=progress.append))
    await until(lambda: progress and progress[-1].replayed == 3 and progress[-1].waits)
    assert "its max_backlog is 3" in progress[-1].waits
    assert (3, 2) == (len(place.stored()), len(place.dead()))
    place.topics.set("acme", '{"qps": 400}')
    assert 5 == (await replaying).replayed


def lane_subject(priority):
    return names.lane_subject(
        "online", partition_of("acme", 0, 1, CLUSTER_CONFIG.partitions, "hashed"), "acme", 0, priority
    )


async def test_dead_letter_of_an_unknown_priority_stays(place):
    await bury(place.store, "odd", priority="urgent")
    await place.fill(2)
    result = await place.dead_letters.replay("acme", rate=FAST)
    assert (2, [(1, "odd")]) == (result.replayed, [each[:2] for each in result.failed])
    assert "its priority 'urgent' is not one of this cluster's" in result.failed[0].error
    assert ([1], "") == (place.dead(), result.stopped)


async def test_dead_letter_refused_by_the_store_stays(place):
    await place.fill(1)
    await bury(place.store, "high", priority="high")
    place.server.refuse(lane_subject("high"), Refused("not today"))
    result = await place.dead_letters.replay("acme", rate=FAST)
    assert (1, [2]) == (result.replayed, place.dead())
    assert "not today" in result.failed[0].error


@pytest.mark.parametrize(
    ("state", "kind", "sentence"),
    [
        ('"draining"', TopicDraining, "project 'acme' is draining and takes no messages"),
        ("deleted", TopicDraining, "project 'acme' was deleted and takes no messages"),
        (None, UnknownProject, "project 'acme' has no topic in environment 'online'"),
    ],
)
async def test_topic_that_takes_no_puts_keeps_its_dead_letters(place, state, kind, sentence):
    await place.fill(3)
    before = place.topics.pop("acme")
    if state == "deleted":
        place.topics["acme"] = delete(before)
    elif state is not None:
        place.topics.set("acme", f'{{"qps": 400, "state": {state}}}')
    for sequence, rate in ((None, None), (None, 5.0), (2, None)):
        with pytest.raises(kind) as caught:
            await place.dead_letters.replay("acme", sequence, rate=rate)
        assert sentence in str(caught.value)
    assert (3, Counter()) == (await place.dead_letters.count("acme"), place.queued())
    assert 3 == await place.dead_letters.drop("acme")


async def test_topic_that_begins_to_drain_stops_the_replay(place):
    await place.fill(100)

    def on_progress(progress):
        if progress.replayed == 3:
            place.topics.set("acme", '{"qps": 400, "state": "draining"}')

    result = await place.dead_letters.replay("acme", rate=100, on_progress=on_progress)
    assert "is draining and takes no messages" in result.stopped
    assert 3 <= result.replayed <= 10
    assert 100 == len(place.dead()) + sum(place.queued().values())


async def test_puts_in_flight_are_bounded(place):
    """M."""
    await place.fill(1_000)
    in_flight = most = 0
    put = place.store.put

    def counted(*message):
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        answer = put(*message)
        answer.add_done_callback(acknowledged)
        return answer

    def acknowledged(_):
        nonlocal in_flight
        in_flight -= 1

    place.store.put = counted
    place.server.delay_acks(math.inf)
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST))
    await until(lambda: in_flight == IN_FLIGHT)
    place.server.delay_acks(0)
    assert 1_000 == (await replaying).replayed
    assert IN_FLIGHT == most


@in_virtual_time
async def test_full_disk_stops_the_replay_with_its_reason():
    """F5: the dead letters stay."""
    async with DeadLetterWorld() as place:
        await place.fill(2)
        place.server.fill_disk()
        result = await client(place, timeout_s=0.3).replay("acme", rate=FAST)
        assert 0 == result.replayed
        assert "(the server can't write: no space left on its disk)" in result.stopped
        assert [1, 2] == place.dead()
