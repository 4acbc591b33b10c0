"""Rate of a replay of dead letters (X5)."""

import asyncio

import pytest

from evenlane.engine.admin.replays.replay import ReplayRate
from tests.support.until import until


async def test_read_ahead_is_one_second_of_the_rate(place, monkeypatch):
    """Dead letters that wait for their turn may be dropped meanwhile."""
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
async def test_rate_holds_from_the_first_second_on(rate):
    """X5: at most 10 ms of the rate go at once."""
    pace, loop = ReplayRate(), asyncio.get_running_loop()
    started, count = loop.time(), int(rate * 0.6)
    for _ in range(count):
        await pace.turn(rate)
    at_once = max(1.0, rate / 100)
    assert loop.time() - started >= (count - at_once - 1) / rate - 0.005


async def test_rate_below_one_admits_the_first_at_once_and_may_change():
    pace, loop = ReplayRate(), asyncio.get_running_loop()
    async with asyncio.timeout(30):
        await pace.turn(0.001)
    started = loop.time()
    for _ in range(3):
        await pace.turn(20)
    assert loop.time() - started >= 0.095


async def test_default_rate_follows_the_topics_quota(place, monkeypatch):
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
