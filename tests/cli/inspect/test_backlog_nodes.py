"""`evenlane backlog purge` and `cancel` beside running nodes, on real servers: put - handled - dropped = 0 (L)."""

import json
import signal

import pytest

from evenlane.engine.admin.backlog import purge
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.producer.put import Put
from tests.support.cli.outside import evenlane
from tests.support.until import until

pytestmark = pytest.mark.real


async def run_json(*arguments):
    code, out, err = await evenlane("backlog", *arguments, "--json")
    assert 0 == code, err
    return json.loads(out)


async def waiting(project="acme"):
    """What waits, due or not."""
    return sum(each["waiting"] + each["delayed"] for each in (await run_json("peek", project))["priorities"])


async def test_a_purge_of_20_000_beside_a_running_node_loses_nothing(world):
    """L: half of it delayed by a day; the node goes on handling what comes later."""
    await world.node()
    await world.topics("acme", "other", qps=200)
    producer = await world.producer()
    puts = [Put("acme", b"", id=f"a{n}", delay=86_400 if n % 2 else None, key=str(n)) for n in range(20_000)]
    await world.put(producer, puts)
    await world.put(producer, [Put("other", b"", id=f"o{n}", delay=86_400) for n in range(10)])
    done = await run_json("purge", "acme", "--yes")
    assert (0, done["dropped"]) == (done["by_command"], done["by_nodes"])
    handled = 20_000 - done["dropped"]
    assert 0 < handled < 10_000  # those before the purge
    await until(lambda: len(world.ids()) == handled, what=f"{handled} to be handled")
    await world.put(producer, [Put("acme", b"", id="after")])
    await until(lambda: "after" in world.ids())
    assert handled + 1 == len(world.ids())
    assert (0, 10) == (await waiting(), await waiting("other"))
    node = world.nodes[0]
    await node.kill()
    await world.node(name="node-b")
    await world.put(producer, [Put("acme", b"", id="last")])
    await until(lambda: "last" in world.ids())
    assert handled + 2 == len(world.ids())


async def test_a_purge_of_one_priority_over_two_nodes_leaves_the_others(world):
    await world.node(name="node-a")
    await world.topics("acme", state="paused", groups=8, spread=8)
    await world.node(name="node-b")
    await until(lambda: owners_of_both(world), what="both to own something")
    producer = await world.producer()
    for priority in ("high", "mid", "low"):
        await world.put(
            producer, [Put("acme", b"", id=f"{priority}-{n}", priority=priority, group=n % 8) for n in range(40)]
        )
    assert not world.refused
    done = await run_json("purge", "acme", "--priority", "mid", "--yes")
    assert (40, 40, 0) == (done["dropped"], done["by_nodes"], done["by_command"])
    left = {each["priority"]: each["waiting"] for each in (await run_json("peek", "acme"))["priorities"]}
    assert {"high": 40, "mid": 0, "low": 40} == left
    await world.topics("acme", groups=8, spread=8)
    kept = [own for own in world.acknowledged if not own.startswith("mid")]
    await world.handled(*kept)
    assert sorted(kept) == sorted(world.ids())


async def owners_of_both(world):
    found = await world.etcd.list("/evenlane/online/owners/")
    return {"node-a", "node-b"} == {json.loads(item.value)["id"] for item in found.items}


async def test_one_message_is_cancelled_wherever_it_waits_and_what_is_handled_is_not(world):
    """A month ahead, waiting for its next attempt, waiting in a paused topic; and none of it is handled ever."""
    await world.node()
    await world.topics("acme", backoff={"base": 600, "factor": 1, "jitter": 0})
    await world.topics("still", state="paused")
    producer = await world.producer()
    month = 30 * 86_400
    await world.put(producer, [Put("acme", b"", id="month", delay=month), Put("acme", b"", id="month-2", delay=month)])
    await world.put(producer, [Put("acme", b"", id="retry", headers={"order": "fail 3"})])
    await world.put(producer, [Put("acme", b"", id="long", headers={"order": "alive 8"})])
    await world.put(producer, [Put("still", b"", id=f"s{n}") for n in range(3)])
    await until(lambda: {"retry"} == set(world.ids("fail")) and "long" in world.ids("begin"))
    with pytest.raises(EvenlaneError, match=r"^message 'long' of acme is being handled right now by node-a: it can't"):
        await purge.cancel(world.settings, "acme", "long")
    await until(lambda: waiting_is(4), what="the retry to be stored, and its original settled")
    assert 1 == (await run_json("cancel", "acme", "month"))["messages"]
    assert 1 == (await run_json("cancel", "acme", "retry"))["messages"]
    assert 1 == (await run_json("cancel", "still", "s1"))["messages"]
    await until(lambda: "long" in world.ids())
    code, _, err = await evenlane("backlog", "cancel", "acme", "month")
    assert (1, 1) == (code, err.count("\n"))
    assert "message 'month' of acme doesn't wait" in err
    await world.topics("still")
    await world.handled("s0", "s2")
    left = [each["messages"] for each in (await run_json("peek", "acme"))["priorities"]]
    assert [["month-2"]] == [[message["id"] for message in messages] for messages in left if messages]
    assert "s1" not in world.ids("begin")


async def waiting_is(count):
    return await waiting() == count


async def test_an_owner_that_does_not_answer_is_named_and_nothing_is_touched(world, monkeypatch):
    """A stopped process owns its partitions until its lease ends: nobody else may drop what it may be handling."""
    monkeypatch.setattr(purge, "_PATIENCE_S", 1.0)
    monkeypatch.setattr(purge, "_SILENT_S", 0.5)
    node = await world.node(lease_ttl=60)
    await world.topics("acme", state="paused")
    producer = await world.producer()
    await world.put(producer, [Put("acme", b"", id="x", delay=86_400)])
    node.send(signal.SIGSTOP)
    with pytest.raises(EvenlaneError, match=r"^0 messages of acme were dropped, but .*node node-a doesn't answer"):
        await purge.purge(world.settings, "acme", None)
    with pytest.raises(EvenlaneError, match=r"^message 'x' of acme was not cancelled: .*node node-a doesn't answer"):
        await purge.cancel(world.settings, "acme", "x")
    assert 1 == await waiting()
    await node.kill()


async def test_when_the_owner_has_died_the_command_waits_for_the_end_of_its_lease(world):
    node = await world.node()
    await world.topics("acme", state="paused")
    producer = await world.producer()
    await world.put(producer, [Put("acme", b"", id=f"x{n}", delay=86_400 * (n % 2) or None) for n in range(10)])
    await node.kill()
    done = await run_json("purge", "acme", "--yes")
    assert (10, 0, 10) == (done["dropped"], done["by_nodes"], done["by_command"])
    assert 0 == await waiting()
