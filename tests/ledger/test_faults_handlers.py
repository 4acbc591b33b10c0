"""Tests of handlers that harm their process: a failed attempt, or a death that is counted, and never a clean end."""

import contextlib
import signal

import pytest

from tests.ledger import settle_logs
from tests.ledger.handlers import forgive
from tests.ledger.promises import never_handled
from tests.ledger.puts import one, some
from tests.ledger.supervised import Supervised
from tests.ledger.world import ProcessWorld
from tests.support.until import until

pytestmark = pytest.mark.real

HARMLESS = ("exit in thread", "loop's handler", "signals", "task", "fork", "fork in thread")
RAISED = ("GeneratorExit", "KeyboardInterrupt", "SystemExit", "StopAsyncIteration", "group")
FAILS = ("recursion", "memory", *(f"raise {each}" for each in RAISED))
DEADLY = ["close files", "exit in task"]
MORE = ["interrupt in task", "cancel all", "stop the loop", "default interrupt"]


async def test_harm_that_a_process_survives_fails_only_its_message(tmp_path):
    """E13, X9, F7: the node goes on, and ends cleanly at SIGTERM. A forked child that returns to the node ends, and
    does none of its work.
    """
    async with ProcessWorld(tmp_path, partitions=4) as world:
        node = await world.node("unruly:unruly", concurrency=4)
        await world.topics("acme", max_attempts=2)
        producer = await world.producer()
        dead = await world.dead_letters()
        bad = [one("acme", f"bad-{number}", order=order) for number, order in enumerate(HARMLESS + FAILS)]
        await world.put(producer, [*bad, *some("acme", "good", 20, order="nothing")])
        failing = {put.id for put in bad[len(HARMLESS) :]}

        async def all_dead() -> bool:
            return failing == await dead.ids()

        await until(all_dead, 60, f"{failing} to be dead letters")
        for own in failing:
            del world.acknowledged[own]
        await world.handled()
        await until(lambda: node.logged("the child ends"), 30, "the child to end")
        assert {"failed 2 times"} == {dead_letter.reason for dead_letter in await dead.read()}
        await world.put(producer, some("acme", "later", 20, order="nothing"))
        await world.handled()
        assert set() == never_handled(world.acknowledged, world.entries())
        assert {1} == {entry.attempt for entry in world.entries() if entry.id not in failing}
        assert len(world.ids()) == len(set(world.ids())), "the child has handled messages, too"
        node.send(signal.SIGTERM)
        await node.ended()  # (its exit code depends on the task that was left behind)
        assert node.logged("node stopped")
        logs = await settle_logs.read(world.settings, 4)
        assert {True} == {each.log.clean for each in logs.values() if each.log.created}


@pytest.mark.parametrize("order", [*DEADLY, *(pytest.param(each, marks=pytest.mark.full) for each in MORE)])
async def test_death_by_a_handler_counts_an_attempt(tmp_path, order):
    """X11: it is no clean end, neither in the settle log nor by its exit code. The attempt counts, and the next node
    goes on.
    """
    async with ProcessWorld(tmp_path, partitions=4) as world:
        first = await world.node("unruly:unruly", concurrency=4)
        await world.topics("acme", max_attempts=1)  # so that it is recorded in flight from the first attempt on
        producer = await world.producer()
        await world.put(producer, [one("acme", "bad", order=f"once {order}")])
        assert await first.ended() not in (0, 130), first.last_words()
        assert not first.logged("clean=True"), "F12: an exit code of 1 is no clean end"
        logs = await settle_logs.read(world.settings, 4)
        stream, sequence = world.acknowledged["acme-bad"]
        assert not logs[stream].log.clean
        assert sequence not in logs[stream].log.settled

        second = await world.node("unruly:unruly", name="node-b", concurrency=4)
        await world.put(producer, some("acme", "good", 20, order="nothing"))
        await world.handled()
        assert {"acme-bad": 2} == {entry.id: entry.attempt for entry in world.entries() if entry.attempt != 1}
        assert 0 == await second.stop(), second.last_words()


async def test_death_by_a_handler_in_the_drain_is_no_clean_end(tmp_path):
    """X11: although the process was asked to end. SystemExit(0) of a handler isn't the exit code 0."""
    async with ProcessWorld(tmp_path, partitions=4) as world:
        node = await world.node("unruly:unruly", concurrency=4)
        await world.topics("acme")
        await world.put(await world.producer(), [one("acme", "bad", order="exit in drain")])
        await until(lambda: world.ids("begin"), 30, "the handler to begin")
        node.send(signal.SIGTERM)
        await until(lambda: node.logged("draining"), 30, "the drain")
        forgive(node.ledger)
        assert 1 == await node.ended(), node.last_words()
        assert node.logged("a task that a handler left behind raised SystemExit")
        assert not node.logged("clean=True")
        logs = await settle_logs.read(world.settings, 4)
        assert not logs[world.acknowledged["acme-bad"][0]].log.clean


async def test_node_that_ends_by_itself_has_no_clean_end(tmp_path):
    """X11, F12: a message may be the cause, so neither the settle log nor the node's last line calls the end clean."""
    async with ProcessWorld(tmp_path, partitions=4) as world:
        node = await world.node("unruly:hangs", concurrency=4)
        await world.topics("acme", ack_wait=0.3, max_attempts=9)
        await world.put(await world.producer(), some("acme", "bad", 2))
        assert 1 == await node.ended()
        assert node.logged("handler threads hang")
        assert (1, 0) == (node.logged("clean=False"), node.logged("clean=True"))
        logs = await settle_logs.read(world.settings, 4)
        assert {False} == {each.log.clean for each in logs.values() if each.log.created}


@pytest.mark.full
async def test_forked_child_that_returns_to_a_handler_thread_ends(tmp_path):
    """X9: otherwise it would wait for ever with all of the node's sockets, and the handler for it."""
    async with ProcessWorld(tmp_path, partitions=4) as world:
        node = await world.node("unruly:forks_in_thread", concurrency=4)
        await world.topics("acme", ack_wait=60)
        await world.put(await world.producer(), some("acme", "forks", 5))
        await world.handled(timeout=45)
        assert (5, 5) == (len(world.ids()), len(world.ids("child")))
        assert 5 == node.logged("the child ends")
        assert 0 == await node.stop()


@pytest.mark.full
async def test_each_kind_of_death_leads_to_a_dead_letter(tmp_path):
    """X11: after at most N + 1 deaths."""
    async with ProcessWorld(tmp_path, partitions=4) as world, Supervised(world, "node-a", "unruly:unruly") as node:
        await world.topics("acme", max_attempts=2)
        producer = await world.producer()
        dead = await world.dead_letters()
        for number, order in enumerate([*DEADLY, *MORE, "exit zero"]):
            await world.put(producer, [one("acme", f"bad-{number}", order=order)])
            del world.acknowledged[f"acme-bad-{number}"]

            async def is_dead() -> bool:
                return f"acme-bad-{number}" in await dead.ids()  # noqa: B023 - it is awaited here

            await until(is_dead, 60, f"{order} to be a dead letter")
        assert {"its process died in attempt 2"} == {each.reason for each in await dead.read()}
        assert len(node.ends) <= 3 * len([*DEADLY, *MORE, "exit zero"])
        await world.put(producer, some("acme", "good", 20, order="nothing"))
        await world.handled()


async def test_second_interrupt_ends_a_blocked_process_at_once(tmp_path):
    """Fault 4, L: even while a handler blocks the loop. The next node handles its message."""
    async with ProcessWorld(tmp_path, partitions=4) as world:
        node = await world.node("unruly:unruly", concurrency=4, lease_ttl=2)
        await world.topics("acme")
        await world.put(await world.producer(), [one("acme", "bad", order="once block")])
        await until(lambda: world.ids("begin"), 30, "the handler to block")
        node.send(signal.SIGINT)
        while node.running:  # (two pending signals are one)
            node.send(signal.SIGINT)
            with contextlib.suppress(AssertionError):
                await until(lambda: not node.running, 0.5)
        assert 130 == await node.ended(), node.last_words()
        await node.start()
        await world.handled()
        assert 0 == await node.stop()
