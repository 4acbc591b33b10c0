"""Dead letters are replayed, on the store in memory (K4, X5, E13)."""

import asyncio
import math
from collections import Counter

import pytest

from evenlane.engine.admin.dead_letters.client import DeadLetterClient, NoSuchDeadLetter
from evenlane.engine.admin.dead_letters.replay import IN_FLIGHT, ReplayRate
from evenlane.engine.base import names
from evenlane.engine.core.ports import Full, Lost, Refused
from evenlane.engine.errors import TopicDraining, UnknownProject
from evenlane.quota.topics.topic import delete
from tests.support.dead_letters import bury
from tests.support.producer_world import CLUSTER_CONFIG
from tests.support.until import until

FAST = 1e6


async def test_one_is_replayed_and_goes(place):
    await place.fill(3)
    result = await place.dead_letters.replay("acme", 2)
    assert (1, [], "") == (result.replayed, result.failed, result.stopped)
    assert ([1, 3], {"m1": 1}) == (place.dead(), place.queued())
    with pytest.raises(NoSuchDeadLetter, match="isn't there any more"):
        await place.dead_letters.replay("acme", 2)


async def test_all_are_replayed_in_the_order_of_their_deaths_and_nobody_elses(place):
    for number in range(600):
        await bury(place.store, f"m{number}")
        await bury(place.store, f"theirs{number}", project="other")
    result = await place.dead_letters.replay("acme", rate=FAST)
    assert (600, 600) == (result.replayed, len(place.dead()))
    [lane] = {message.subject for message in place.stored()}
    assert [f"m{number}".encode() for number in range(600)] == [message.body for message in place.stored()]
    assert ".acme." in lane


async def test_what_dies_again_meanwhile_is_not_replayed_in_a_loop(place, monkeypatch):
    await place.fill(5)
    delete = place.store.delete

    async def dies_again(lane, sequence):
        await delete(lane, sequence)
        await bury(place.store, f"again{sequence}")

    monkeypatch.setattr(place.store, "delete", dies_again)
    assert 5 == (await place.dead_letters.replay("acme", rate=FAST)).replayed
    assert [6, 7, 8, 9, 10] == place.dead()


async def test_put_twice_it_is_stored_once(place):
    """D: the letter stayed since it couldn't be removed; within the duplicate window nothing comes twice."""
    await place.dead_letters.remove(await bury(place.store, "gone"))
    await place.fill(3)
    place.dead_letters._timeout_s = 0.3
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(place.store, "delete", _lost)
        result = await place.dead_letters.replay("acme", rate=FAST)
    assert 0 == result.replayed
    assert "its message is in its queue again, but the dead letter can't be removed" in result.failed[0].error
    assert result.stopped
    place.dead_letters._timeout_s = 30
    again = await place.dead_letters.replay("acme", rate=FAST)
    assert (3, [], {"m0": 1, "m1": 1, "m2": 1}) == (again.replayed, place.dead(), place.queued())


async def _lost(*_):
    raise Lost("NATS did not answer in time")


async def test_two_replays_at_once_put_each_message_once(place):
    """D."""
    await place.fill(500)
    another = DeadLetterClient(place.store, place.env, place.topics, CLUSTER_CONFIG)
    results = await asyncio.gather(place.dead_letters.replay("acme", rate=2_000), another.replay("acme", rate=3_000))
    assert [[], []] == [result.failed for result in results]
    assert ([], {f"m{number}": 1 for number in range(500)}) == (place.dead(), place.queued())


async def test_a_letter_stays_until_its_message_is_acknowledged(place):
    """L."""
    await place.fill(3)
    place.server.delay_acks(math.inf)
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST))
    await until(lambda: len(place.stored()) == 3)
    assert [1, 2, 3] == place.dead()
    place.server.delay_acks(0)
    assert 3 == (await replaying).replayed
    assert [] == place.dead()


async def test_an_interrupt_waits_for_what_is_on_its_way_and_leaves_the_rest(place):
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


async def test_no_acknowledgement_stops_it_and_nothing_is_lost(place):
    """L: it isn't known which of them are stored; the letters are all there."""
    await place.fill(5)
    place.dead_letters._timeout_s = 0.3
    place.server.delay_acks(math.inf)
    result = await place.dead_letters.replay("acme", rate=FAST)
    assert (0, 5) == (result.replayed, len(result.failed))
    assert "may or may not be stored" in result.stopped
    assert [1, 2, 3, 4, 5] == place.dead()
    place.server.delay_acks(0)
    place.dead_letters._timeout_s = 30
    assert 5 == (await place.dead_letters.replay("acme", rate=FAST)).replayed
    assert {1} == set(place.queued().values())


async def test_an_outage_is_waited_out(place):
    await place.fill(300)
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=2_000))
    await until(place.queued)
    place.server.disconnect()
    await asyncio.sleep(0.3)
    assert not replaying.done()
    place.server.reconnect()
    result = await replaying
    assert (300, [], "") == (result.replayed, result.failed, result.stopped)
    assert {f"m{number}": 1 for number in range(300)} == place.queued()


async def test_a_full_queue_is_waited_for_and_others_go_on(place):
    """K6: and it is told."""
    await place.fill(3)
    await bury(place.store, "high", priority="high")
    [mid] = {names.lane_subject("online", number, "acme", 0, "mid") for number in [_partition()]}
    place.server.refuse(mid, Full("maximum messages per subject exceeded"))
    reported = []
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST, on_progress=reported.append))
    await until(lambda: reported and reported[-1].replayed == 1 and reported[-1].waits)
    assert "maximum messages per subject exceeded" in reported[-1].waits
    assert {"high": 1} == place.queued()
    await place.dead_letters.drop("acme", 2)  # somebody else: it must not be replayed after that
    place.server.accept(mid)
    result = await replaying
    assert (3, [], "") == (result.replayed, result.failed, result.stopped)
    assert ({"high": 1, "m0": 1, "m2": 1}, []) == (place.queued(), place.dead())
    assert "" == reported[-1].waits


async def test_a_topic_that_holds_as_much_as_it_may_is_waited_for(place):
    """K6: `max_backlog`, as producers keep to it."""
    place.topics.set("acme", '{"qps": 400, "max_backlog": 3}')
    await place.fill(5)
    reported = []
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST, on_progress=reported.append))
    await until(lambda: reported and reported[-1].replayed == 3 and reported[-1].waits)
    assert "its max_backlog is 3" in reported[-1].waits
    assert (3, 2) == (len(place.stored()), len(place.dead()))
    place.topics.set("acme", '{"qps": 400}')
    assert 5 == (await replaying).replayed


def _partition() -> int:
    from evenlane.ring.hashing import partition_of

    return partition_of("acme", 0, 1, CLUSTER_CONFIG.partitions)


async def test_one_that_can_not_be_replayed_stays_and_the_others_go(place):
    await bury(place.store, "odd", priority="urgent")
    await place.fill(2)
    result = await place.dead_letters.replay("acme", rate=FAST)
    assert (2, [(1, "odd")]) == (result.replayed, [each[:2] for each in result.failed])
    assert "its priority 'urgent' is none of this cluster's" in result.failed[0].error
    assert ([1], "") == (place.dead(), result.stopped)


async def test_one_that_the_store_refuses_stays_and_the_others_go(place):
    await place.fill(1)
    await bury(place.store, "high", priority="high")
    place.server.refuse(names.lane_subject("online", _partition(), "acme", 0, "high"), Refused("not today"))
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
async def test_a_topic_that_takes_no_messages_gets_none_and_its_letters_stay(place, state, kind, sentence):
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


async def test_a_topic_that_is_drained_meanwhile_stops_it(place):
    await place.fill(100)

    def on_progress(progress):
        if progress.replayed == 3:
            place.topics.set("acme", '{"qps": 400, "state": "draining"}')

    result = await place.dead_letters.replay("acme", rate=100, on_progress=on_progress)
    assert "is draining and takes no messages" in result.stopped
    assert 3 <= result.replayed <= 10
    assert 100 == len(place.dead()) + sum(place.queued().values())


async def test_it_is_pipelined_within_a_bound(place):
    """M: neither one after the other nor all at once."""
    await place.fill(1_000)
    flying = most = 0
    put = place.store.put

    def counted(*message):
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        answer = put(*message)
        answer.add_done_callback(landed)
        return answer

    def landed(_):
        nonlocal flying
        flying -= 1

    place.store.put = counted
    place.server.delay_acks(math.inf)
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=FAST))
    await until(lambda: flying == IN_FLIGHT)
    place.server.delay_acks(0)
    assert 1_000 == (await replaying).replayed
    assert IN_FLIGHT == most


async def test_no_more_letters_are_read_ahead_than_go_in_a_second(place, monkeypatch):
    """Those that wait here for their turn may be dropped meanwhile."""
    await place.fill(50)
    sizes = []
    get = place.store.get

    async def counted(lane, sequences):
        sizes.append(len(sequences))
        return await get(lane, sequences)

    monkeypatch.setattr(place.store, "get", counted)
    replaying = asyncio.create_task(place.dead_letters.replay("acme", rate=20))
    await until(lambda: len(place.dead()) <= 48)
    replaying.cancel()
    await asyncio.wait([replaying])
    assert {20} == set(sizes)


@pytest.mark.parametrize("rate", [50.0, 400.0, 5_000.0])
async def test_the_pace_is_kept_from_the_first_second_on(rate):
    """X5: a stream, no burst: what goes at once is 10 ms of it."""
    pace, loop = ReplayRate(), asyncio.get_running_loop()
    started, count = loop.time(), int(rate * 0.6)
    for _ in range(count):
        await pace.turn(rate)
    at_once = max(1.0, rate / 100)
    assert loop.time() - started >= (count - at_once - 1) / rate - 0.005


async def test_rates_below_one_and_changes_of_the_rate(monkeypatch):
    pace, loop = ReplayRate(), asyncio.get_running_loop()
    async with asyncio.timeout(1):
        await pace.turn(0.001)
    started = loop.time()
    for _ in range(3):
        await pace.turn(20)
    assert loop.time() - started >= 0.095


async def test_without_a_rate_it_is_the_topics_own_as_it_changes(place, monkeypatch):
    await place.fill(20)
    rates = []
    turn = ReplayRate.turn

    async def noted(self, rate):
        rates.append(rate)
        if len(rates) == 5:
            place.topics.set("acme", '{"qps": 300}')
        await turn(self, rate)

    monkeypatch.setattr(ReplayRate, "turn", noted)
    await place.dead_letters.replay("acme")
    assert [400.0] * 5 + [300.0] * 15 == rates


async def test_a_stream_that_cannot_be_written_stops_it_with_the_reason(place):
    """F5: nobody reads that the store took a message without an answer; the letters stay."""
    await place.fill(2)
    place.server.fill_disk()
    place.dead_letters._timeout_s = 0.3
    result = await place.dead_letters.replay("acme", rate=FAST)
    assert 0 == result.replayed
    assert "(the server can't write: no space left on its disk)" in result.stopped
    assert [1, 2] == place.dead()
