"""L: `evenlane backlog purge` and `cancel` with running nodes on real servers: put - handled - dropped = 0."""

import json
import signal

import pytest

from evenlane.engine.admin.backlog import drop_rounds
from evenlane.engine.admin.backlog.cancel import cancel
from evenlane.engine.admin.backlog.purge import purge
from evenlane.engine.base import names
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.producer.put import Put
from tests.ledger.handlers import forgive
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
def run_json(evenlane_in_thread):
    """Runs `evenlane backlog ... --json`; returns its document."""

    async def command(*arguments):
        code, out, err = await evenlane_in_thread("backlog", *arguments, "--json")
        assert 0 == code, err
        return json.loads(out)

    return command


@pytest.fixture
def waiting(run_json):
    """The number of waiting messages of a project, delayed ones included."""

    async def count(project="acme"):
        return sum(each["waiting"] + each["delayed"] for each in (await run_json("peek", project))["priorities"])

    return count


async def test_purge_with_running_node_loses_nothing(world, run_json, waiting):
    """L: 20,000 messages, half of them delayed by a day; the node handles messages put later."""
    await world.node()
    await world.topics("acme", "other", qps=50)  # the purge comes before all are handled
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

    async def all_are_settled():
        return await waiting() == 0

    await until(all_are_settled)
    assert (handled + 1, 10) == (len(world.ids()), await waiting("other"))
    node = world.nodes[0]
    await node.kill()
    await world.node(name="node-b")
    await world.put(producer, [Put("acme", b"", id="last")])
    await until(lambda: "last" in world.ids())
    assert handled + 2 == len(world.ids())


async def test_purge_of_one_priority_over_two_nodes_keeps_the_others(world, run_json):
    await world.node(name="node-a")
    await world.topics("acme", state="paused", groups=8, spread=8)
    await world.node(name="node-b")
    await until(lambda: both_own_partitions(world), what="both nodes to own partitions")
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


async def both_own_partitions(world):
    found = await world.etcd.list(names.key(world.settings.env, "owners", ""))
    return {"node-a", "node-b"} == {json.loads(item.value)["id"] for item in found.items}


async def test_cancel_finds_a_waiting_message_anywhere(world, run_json, waiting, evenlane_in_thread):
    """Delayed by a month, between attempts, in a paused topic; none of them is handled later. A message in flight isn't
    cancelled.
    """
    await world.node()
    await world.topics("acme", backoff={"base": 600, "factor": 1, "jitter": 0}, ack_wait=600)
    await world.topics("still", state="paused")
    producer = await world.producer()
    month = 30 * 86_400
    await world.put(producer, [Put("acme", b"", id="month", delay=month), Put("acme", b"", id="month-2", delay=month)])
    await world.put(producer, [Put("acme", b"", id="retry", headers={"order": "fail 3"})])
    await world.put(producer, [Put("acme", b"", id="long", headers={"order": "held"})])
    await world.put(producer, [Put("still", b"", id=f"s{n}") for n in range(3)])
    await until(lambda: {"retry"} == set(world.ids("fail")) and "long" in world.ids("begin"))
    with pytest.raises(EvenlaneError, match=r"^message 'long' of acme is being handled by node-a and can't"):
        await cancel(world.settings, "acme", "long")

    async def retry_is_stored():
        return await waiting() == 4

    await until(retry_is_stored, what="the retry to be stored, and its original settled")
    assert 1 == (await run_json("cancel", "acme", "month"))["messages"]
    assert 1 == (await run_json("cancel", "acme", "retry"))["messages"]
    assert 1 == (await run_json("cancel", "still", "s1"))["messages"]
    forgive(world.folder / "ledger")
    await until(lambda: "long" in world.ids())
    code, _, err = await evenlane_in_thread("backlog", "cancel", "acme", "month")
    assert (1, 1) == (code, err.count("\n"))
    assert "message 'month' of acme isn't waiting" in err
    await world.topics("still")
    await world.handled("s0", "s2")

    async def long_is_settled():
        return await waiting() == 1

    await until(long_is_settled)
    left = [each["messages"] for each in (await run_json("peek", "acme"))["priorities"]]
    assert [["month-2"]] == [[message["id"] for message in messages] for messages in left if messages]
    assert "s1" not in world.ids("begin")


async def test_silent_owner_is_named_and_keeps_its_messages(world, waiting, monkeypatch):
    """A stopped process owns its partitions until its lease ends, so no other process may drop their messages."""
    monkeypatch.setattr(drop_rounds, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(drop_rounds, "_SILENT_S", 0.5)
    node = await world.node(lease_ttl=60)
    await world.topics("acme", state="paused")
    producer = await world.producer()
    await world.put(producer, [Put("acme", b"", id="x", delay=86_400)])
    node.send(signal.SIGSTOP)
    with pytest.raises(EvenlaneError, match=r"^0 messages of acme were dropped, but .*node node-a doesn't answer"):
        await purge(world.settings, "acme", None)
    with pytest.raises(EvenlaneError, match=r"^message 'x' of acme was not cancelled: .*node node-a doesn't answer"):
        await cancel(world.settings, "acme", "x")
    assert 1 == await waiting()
    await node.kill()


async def test_purge_waits_for_the_end_of_a_dead_owners_lease(world, run_json, waiting):
    node = await world.node()
    await world.topics("acme", state="paused")
    producer = await world.producer()
    await world.put(producer, [Put("acme", b"", id=f"x{n}", delay=86_400 * (n % 2) or None) for n in range(10)])
    await node.kill()
    done = await run_json("purge", "acme", "--yes")
    assert (10, 0, 10) == (done["dropped"], done["by_nodes"], done["by_command"])
    assert 0 == await waiting()
