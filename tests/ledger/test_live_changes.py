"""Tests of X4: a changed topic acts on the waiting backlog on every node, and nothing is lost or repeated."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import TopicDraining
from tests.ledger.live import live, overlapping
from tests.ledger.promises import most_in_a_second
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_states_act_on_the_backlog(tmp_path):
    """X4, L, D: a paused topic and a deleted one hold still on both nodes, and continue. A draining one refuses puts at
    a running producer, and handles its backlog. 400 changes between paused and active lose and repeat nothing.
    """
    async with live(tmp_path) as world:
        await world.topic("paused", qps=50)
        await world.put("paused", 600)
        await world.begun("paused", 30)
        await world.edit("paused", state="paused")
        await world.holds_still("paused")
        await world.edit("paused", state="active", qps=2_000)

        await world.topic("deleted", qps=50)
        await world.put("deleted", 480)
        await world.begun("deleted", 30)
        await world.cluster.etcd.delete(names.key("online", "topics", "deleted"))
        accepted = world.cluster.history
        await until(lambda: accepted.value("accepted/deleted").get("deleted"), 30, "the deletion to be accepted")
        await world.holds_still("deleted")
        with pytest.raises(TopicDraining):
            await world.put_one("deleted")
        await world.edit("deleted", qps=2_000)

        await world.topic("drained", qps=200)
        await world.put("drained", 480)
        await world.begun("drained", 20)
        await world.edit("drained", state="draining")

        async def refused() -> bool:
            try:
                await world.put_one("drained")
            except TopicDraining:
                return True
            return False

        await until(refused, 30, "puts to be refused")

        await world.topic("switched", qps=2_000)
        put = 0
        for number in range(400):
            if put - len(world.begins("switched")) < 150:
                put += len(await world.put("switched", 240, order="sleep 0.005"))
            await world.write("switched", state="paused" if number % 2 else "active")
        await world.edit("switched", state="active")
        await world.check()


async def test_quota_acts_on_the_backlog(tmp_path):
    """X4, Q: a raised quota lets messages start that had minutes to wait; after it is lowered, each node starts one
    message per second; through a thousand edits, both nodes together keep to the highest quota.
    """
    low, high = 20, 60
    async with live(tmp_path) as world:
        await world.topic("raised", qps=0.01)
        await world.put("raised", 240)
        await world.begun("raised", 1)
        assert len(world.begins("raised")) < 10
        await world.edit("raised", qps=2_000)

        await world.topic("lowered", qps=300)
        await world.put("lowered", 900)
        await world.begun("lowered", 30)
        await world.edit("lowered", qps=2)
        await world.taken_up()
        await world.keeps("lowered", 2)
        await world.edit("lowered", qps=3_000)

        await world.topic("edited", qps=high)
        await world.put("edited", 480)
        await world.begun("edited", 5)
        for number in range(1_000):
            await world.write("edited", qps=low if number % 2 else high)
        await world.edit("edited", qps=2)
        await world.taken_up()
        assert most_in_a_second(world.begins("edited")) <= 1.05 * high + 1 + len(world.nodes)
        await world.keeps("edited", 2)
        await world.edit("edited", qps=3_000)
        await world.check()


async def test_weight_acts_on_the_backlog(tmp_path):
    """X4, W: two topics share a slot evenly, then one of them gets twenty times as much."""
    async with live(tmp_path, concurrency=1) as world:
        for project in ("heavy", "light"):
            await world.topic(project, qps=2_000, weight=1, state="paused")
            await world.put(project, 480, order="sleep 0.01")
        for project in ("heavy", "light"):
            await world.edit(project, state="active")
        for project in ("heavy", "light"):
            await world.begun(project, 60)
        await world.edit("heavy", weight=20)
        await world.taken_up()
        since = now_ns()
        done = len(world.begins("heavy")) + 80
        await until(lambda: len(world.begins("heavy")) >= done, 30, "80 more to begin")
        shares = {project: sum(entry.at > since for entry in world.begins(project)) for project in ("heavy", "light")}
        assert shares["heavy"] > 5 * shares["light"]
        await world.check()


async def test_concurrency_acts_on_the_backlog(tmp_path):
    """X4: one message at a time on a node, then many, then one at a time again."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=2_000, concurrency=1)
        await world.put("acme", 720, order="sleep 0.2")
        await world.begun("acme", 3)
        pids = {entry.pid for entry in world.begins("acme")}
        assert {1} == {overlapping(world.of("acme"), pid, 0) for pid in pids}
        since = now_ns()
        await world.edit("acme", concurrency=20)
        await until(lambda: min(overlapping(world.of("acme"), pid, since) for pid in pids) > 5, 30, "more at once")
        await world.edit("acme", concurrency=1)
        await world.taken_up()
        await world.begins_more("acme", 2)
        since = now_ns()
        await world.begins_more("acme", 3)
        assert {1} == {overlapping(world.of("acme"), pid, since) for pid in pids}
        await world.edit("acme", concurrency=None)
        await world.check()


async def test_ageing_acts_on_the_backlog(tmp_path):
    """X4, E5: strict priority, then every other turn for low messages, then strict priority again."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=60)
        await world.put("acme", 960, priority="high")
        low = await world.put("acme", 480, priority="low")
        await world.begun("acme", 15)

        def begun_low() -> int:
            return sum(entry.id in low for entry in world.begins("acme"))

        assert begun_low() == 0
        await world.edit("acme", ageing=0.5)
        await until(lambda: begun_low() > 20, 30, "low messages to begin")
        await world.edit("acme", ageing=None)
        await world.taken_up()
        since = begun_low()
        await world.a_while()
        assert (since, True) == (begun_low(), len(world.begins("acme")) < 960)
        await world.edit("acme", qps=3_000)
        await world.check()
