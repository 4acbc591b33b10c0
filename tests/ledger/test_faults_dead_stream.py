"""Fault 16: the dead-letter stream refuses writes, or is gone."""

import asyncio
from collections import Counter

import nats
import pytest

from tests.ledger.puts import some
from tests.wait import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

HOPELESS = 200


async def refuse(world, how: str) -> None:
    if how == "gone":
        await world.api("STREAM.DELETE.DEAD_online")
    else:
        await configured(world, max_msgs=1)


async def repair(world, how: str, config: dict) -> None:
    if how == "gone":
        await world.api("STREAM.CREATE.DEAD_online", config)
    else:
        await configured(world, max_msgs=-1)


async def configured(world, **changes) -> None:
    config = (await world.api("STREAM.INFO.DEAD_online"))["config"]
    await world.api("STREAM.UPDATE.DEAD_online", config | changes)


@pytest.mark.parametrize("how", ["full", "gone"])
async def test_originals_stay_until_the_dead_letter_stream_takes_them(world, how):
    """L, V: tries are bounded meanwhile, other projects go on, and in the end each has its dead letter, once."""
    node = await world.node()
    await world.topics("bad", max_attempts=1)
    await world.topics("good")
    producer = await world.producer()
    config = (await world.api("STREAM.INFO.DEAD_online"))["config"]
    await refuse(world, how)
    tries: Counter[str] = Counter()
    client = await nats.connect(world.servers.nats.url)

    async def count(message) -> None:
        tries[message.headers["Nats-Msg-Id"]] += 1

    await client.subscribe("dead.online.*", cb=count)
    await world.put(producer, some("bad", "m", HOPELESS, order="fail 9"))
    await until(lambda: sum(tries.values()) > 64, 10, "copies to be refused")
    good = some("good", "m", 500)
    await world.put(producer, good)
    await world.handled(*(put.id for put in good))
    await asyncio.sleep(4)  # each try waits twice as long as the one before it, from 0.5 s on
    assert max(tries.values()) <= 5
    await repair(world, how, config)
    dead = await world.dead_letters()
    await until(lambda: _has(dead, HOPELESS), 60, "the dead letters")
    await client.close()
    letters = Counter(letter.id for letter in await dead.read())
    assert {f"bad-m-{number}": 1 for number in range(HOPELESS)} == letters
    assert {1} == set(Counter(world.ids("begin")).values())
    assert 0 == await node.stop()


async def _has(dead, count: int) -> bool:
    return len(await dead.read()) >= count
