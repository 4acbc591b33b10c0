"""Tests of fault 16: the dead-letter stream refuses writes, or is gone."""

from collections import Counter
from math import log2

import nats
import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.put import Put
from tests.ledger.puts import some
from tests.support.until import until

pytestmark = pytest.mark.real

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


@pytest.mark.parametrize("how", [pytest.param("full", marks=pytest.mark.full), "gone"])
async def test_originals_stay_until_the_dead_letter_stream_accepts(world, how):
    """L, V: the tries are bounded meanwhile, other projects go on, and in the end each message has one dead letter."""
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
    began = now_ns()
    await world.put(producer, some("bad", "m", HOPELESS, order="fail 9"))
    await until(lambda: sum(tries.values()) > 64, what="copies to be refused")
    good = some("good", "m", 500)
    await world.put(producer, good)
    await world.handled(*(put.id for put in good))
    await until(lambda: max(tries.values()) >= 2, 30, "a copy to be refused again")
    waited_s = (now_ns() - began) / 1e9  # each try waits twice as long as the one before it, from 0.5 s on
    assert max(tries.values()) <= 2 + log2(1 + waited_s / 0.5)
    await repair(world, how, config)
    dead = await world.dead_letters()
    await until(lambda: _has(dead, HOPELESS), 60, "the dead letters")
    await client.close()
    dead_letters = Counter(dead_letter.id for dead_letter in await dead.read())
    assert {f"bad-m-{number}": 1 for number in range(HOPELESS)} == dead_letters
    assert {1} == set(Counter(world.ids("begin")).values())
    assert 0 == await node.stop()


async def test_key_waits_for_the_dead_letter_of_its_head(world):
    """K6: in an ordered topic, the original keeps its turn without another attempt, and other keys go on."""
    node = await world.node()
    await world.topics("bad", max_attempts=2, ordered=True, groups=1)
    producer = await world.producer()
    await refuse(world, "full")
    puts = [
        Put("bad", b"", key=key, id=f"{key}-{n}", headers={"order": "fail 9"} if (key, n) == ("stuck", 0) else None)
        for n in range(20) for key in ("stuck", "free")
    ]  # fmt: skip
    filler = some("bad", "filler", 3, order="reject")
    await world.put(producer, filler)
    dead = await world.dead_letters()
    await until(lambda: _has(dead, 1), what="the one dead letter that the stream accepts")
    await world.put(producer, puts)
    await world.handled(*(f"free-{n}" for n in range(20)))
    await until(lambda: world.ids("begin").count("stuck-0") == 2, what="both attempts")
    assert {"stuck-0"} == {own for own in world.ids("begin") if own.startswith("stuck")}
    await configured(world, max_msgs=-1)
    await world.handled(*(f"stuck-{n}" for n in range(1, 20)))
    await until(lambda: _has(dead, 4), 30, "the dead letters")
    assert {"stuck-0", *(put.id for put in filler)} == await dead.ids()
    assert [f"stuck-{n}" for n in range(1, 20)] == [own for own in world.ids() if own.startswith("stuck")]
    assert 2 == world.ids("begin").count("stuck-0")
    assert 0 == await node.stop()


async def test_fallback_works_without_the_dead_letter_stream(world):
    """E13, K4: a message that the fallback takes needs no stream; one on which it fails is a dead letter later."""
    node = await world.node(fallback="give_up")
    await world.topics("bad", max_attempts=1)
    producer = await world.producer()
    config = (await world.api("STREAM.INFO.DEAD_online"))["config"]
    await refuse(world, "gone")
    failing = some("bad", "m", 100, order="fail 9")
    for put in failing[:10]:
        put.headers = {"order": "fail 9", "fallback": "fail"}
    await world.put(producer, failing)
    taken = {str(put.id) for put in failing[10:]}
    await until(lambda: taken <= set(world.ids("gave up")), 30, "the fallback to take them")
    await repair(world, "gone", config)
    dead = await world.dead_letters()
    await until(lambda: _has(dead, 10), 30, "the dead letters")
    assert {str(put.id) for put in failing[:10]} == await dead.ids()
    assert Counter(dict.fromkeys(taken, 1)) == Counter(world.ids("gave up"))
    assert 0 == await node.stop()


async def _has(dead, count: int) -> bool:
    return len(await dead.read()) >= count
