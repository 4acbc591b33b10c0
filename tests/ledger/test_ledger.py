"""The ledger test: everything that was acknowledged is accounted for, whatever dies in the middle."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from tests.ledger import settle_logs
from tests.ledger.handlers import fails
from tests.ledger.process import NodeProcess
from tests.ledger.settle_logs import Log
from tests.ledger.world import ProcessWorld
from tests.support.until import until

if TYPE_CHECKING:
    from tests.ledger.entries import Entry

_log = logging.getLogger(__name__)

PROJECTS = [f"tenant-{number:03d}" for number in range(300)]
PRIORITIES = ("high", "mid", "low")
PARTITIONS = 128
CONCURRENCY = 64
NAMED = CONCURRENCY  # by an in-flight record: what is handled, and what is about to be
# Attempts that failed right before a death: their copies are there, and the messages themselves aren't settled yet.
COPIED = 576
FAULTS = 3  # of each kind
SLICE = 1_000  # messages put at once
SECOND = 1_000_000_000
SETTLE_INTERVAL_NS = SECOND // 10
# Dispatch stops while settles are older than the interval and a second, on a busy machine too.
UNSETTLED_NS = SETTLE_INTERVAL_NS + SECOND


@dataclass
class Crash:
    """A node killed, and what the settle logs said before anybody else had read them."""

    pid: int
    entries_before: int
    logs: dict[str, Log]


@dataclass
class Story:
    world: ProcessWorld
    messages: int
    rate: int  # msg/s
    crashes: list[Crash] = field(default_factory=list)

    async def load(self, producer: Producer) -> None:
        """Put all of them, evenly spread over the time that the faults take."""
        clock = asyncio.get_running_loop().time
        start = clock()
        for first in range(0, self.messages, SLICE):
            numbers = range(first, min(first + SLICE, self.messages))
            await self.world.put(producer, [_message(number) for number in numbers])
            await asyncio.sleep(max(0.0, start + numbers.stop / self.rate - clock()))

    async def disturb(self, node: NodeProcess) -> None:
        """Kill nats-server and the node in turn, each while messages are on their way."""
        for number in range(FAULTS):
            await self._reached((2 * number + 1) / (2 * FAULTS + 1))
            await self.world.servers.nats.kill()
            await self.world.servers.nats.start()
            await self._recovered()
            await self._reached((2 * number + 2) / (2 * FAULTS + 1))
            await node.kill()
            logs = await settle_logs.read(self.world.settings, PARTITIONS)
            self.crashes.append(Crash(node.pid, len(self.world.entries()), logs))
            await node.start()
            await self._recovered()

    async def _reached(self, share: float) -> None:
        await until(lambda: len(self.world.acknowledged) >= share * self.messages, 60, "the load")

    async def _recovered(self) -> None:
        """All that was put before now has been begun: the next fault hits a node that isn't busy with this one."""
        left = set(self.world.acknowledged)

        def all_begun() -> bool:
            left.difference_update(entry.id for entry in self.world.entries())
            return not left

        await until(all_begun, 60, "what was put before the fault's end to be begun")


def _message(number: int) -> Put:
    project = PROJECTS[number % len(PROJECTS)]
    return Put(project, b"%d" % number, priority=PRIORITIES[number // 7 % 3], id=f"m{number}")


@pytest.mark.real
@pytest.mark.timeout(240)
@pytest.mark.parametrize("messages", [20_000, pytest.param(100_000, marks=pytest.mark.full)])
async def test_each_acknowledged_message_is_handled_or_dead_through_crashes_of_both_sides(tmp_path, messages):
    """L, D, K4, K7, E11: three kill -9 of nats-server and three of the node, in the middle of the load."""
    async with ProcessWorld(tmp_path, partitions=PARTITIONS, group_qps=50_000) as world:
        node = await world.node("flaky", concurrency=CONCURRENCY)
        await world.topics(*PROJECTS)
        producer = await world.producer()
        story = Story(world, messages, rate=4_000)
        async with asyncio.TaskGroup() as group:
            group.create_task(story.load(producer))
            group.create_task(story.disturb(node))
        dead = await world.dead_letters()
        wanted = set(world.acknowledged)
        hopeless = {own for own in wanted if all(fails(own, attempt) for attempt in (1, 2, 3))}
        await until(lambda: _have_ended(world, dead, wanted), 120, "all to be handled or dead")
        # (a message and its copy, where both are there, come to their ends one after the other)
        await until(lambda: _nothing_waits(world), 30, "nothing to wait in any stream")
        assert 0 == await node.stop()

        check_chains(story)
        check_duplicates(story)
        dead_letters = Counter(dead_letter.id for dead_letter in await dead.read())
        # (what was in flight at a death has had an attempt more, and may have ended so, or done well in it)
        assert hopeless - dead_letters.keys() <= {entry.id for entry in world.entries() if entry.attempt > 3}
        assert len(dead_letters.keys() - hopeless) <= len(story.crashes) * NAMED
        # (and may have failed and been copied before: then both the copy and the message come to their ends)
        assert dead_letters.total() - len(dead_letters) <= len(story.crashes) * COPIED
        final = await settle_logs.read(world.settings, PARTITIONS)
        for crash in story.crashes:
            check_log(story, crash)
        check_end(final)
        await check_next_epoch(story, node)


async def _have_ended(world, dead, wanted) -> bool:
    return wanted <= {*world.ids(), *await dead.ids()}


def check_chains(story: Story) -> None:
    """Each message had just the attempts that it should have had; nothing was handled that was never put."""
    seen: dict[str, set[tuple[int, str]]] = {}
    for entry in story.world.entries():
        seen.setdefault(entry.id, set()).add((entry.attempt, entry.what))
    maybe = {f"m{number}" for number in range(story.messages)} - story.world.acknowledged.keys()
    assert set() == seen.keys() - story.world.acknowledged.keys() - maybe
    wrong = {own: chain for own, chain in seen.items() if chain != _chain(own)}
    # What was in flight at a death had an attempt more, which left no entry if it hadn't begun (X11).
    deaths = len(story.crashes)
    assert len(wrong) <= deaths * NAMED
    assert {own for own, chain in wrong.items() if max(chain)[0] > 3 + deaths} == set()


def _chain(own: str) -> set[tuple[int, str]]:
    chain = set()
    for attempt in (1, 2, 3):
        bad = fails(own, attempt)
        chain.add((attempt, "fail" if bad else "ok"))
        if not bad:
            break
    return chain


def check_duplicates(story: Story) -> None:
    """D: only a killed node's work came again: what it had in flight, or had ended too late to settle it."""
    entries = story.world.entries()
    handlings: dict[tuple[str, int], list[Entry]] = {}
    for entry in entries:
        handlings.setdefault((entry.stream, entry.sequence), []).append(entry)
    again = [each for each in handlings.values() if len(each) > 1]
    per_node = Counter(entry.pid for each in again for entry in each[:-1])
    killed = {crash.pid for crash in story.crashes}
    assert set() == per_node.keys() - killed  # so the kills of nats-server doubled nothing
    last = {entry.pid: entry.at for entry in entries}
    ended_late = Counter(entry.pid for entry in entries if last[entry.pid] - entry.at <= UNSETTLED_NS)
    interval = Counter(entry.pid for entry in entries if last[entry.pid] - entry.at <= SETTLE_INTERVAL_NS)
    _log.info(
        "doubled by each kill of the node: %s; ended in the settle interval before it: %s",
        [per_node[crash.pid] for crash in story.crashes], [interval[crash.pid] for crash in story.crashes],
    )  # fmt: skip
    for pid in killed:
        assert per_node[pid] <= CONCURRENCY + ended_late[pid]
    ids = Counter(entry.id for entry in entries if entry.what == "ok")
    twice = sum(max(0, sum(entry.what == "ok" for entry in each) - 1) for each in again)
    # None was stored twice under two sequences, but for retries whose original wasn't settled yet as its node died: it
    # begins with the next attempt, which may end well.
    assert 0 <= ids.total() - len(ids) - twice <= len(killed) * COPIED


def check_log(story: Story, crash: Crash) -> None:
    """E11: the epochs after a crash handled just what its logs left open: what they called settled had been
    handled, and so had what was removed from the streams.
    """
    entries = story.world.entries()
    before = {(entry.stream, entry.sequence) for entry in entries[: crash.entries_before]}
    after = {(entry.stream, entry.sequence) for entry in entries[crash.entries_before :]}
    settled = {(stream, sequence) for stream, log in crash.logs.items() for sequence in log.settled()}
    waiting = {(stream, sequence) for stream, log in crash.logs.items() for sequence in log.waiting}
    removed = {
        (stream, sequence)
        for stream, sequence in story.world.acknowledged.values()
        if sequence < crash.logs[stream].state.first
    }
    assert set() == settled - before
    assert set() == removed - before
    assert set() == settled & after
    # A retry that was named in the in-flight record has had an attempt more, and if that was its last it is dead.
    unhandled = waiting - after
    assert all(stream.startswith("LATER") for stream, _ in unhandled)
    assert len(unhandled) <= NAMED


async def _nothing_waits(world: ProcessWorld) -> bool:
    logs = await settle_logs.read(world.settings, PARTITIONS)
    return not any(log.waiting for log in logs.values())


def check_end(final: dict[str, Log]) -> None:
    """A clean end leaves nothing open."""
    assert {} == {stream: log.waiting for stream, log in final.items() if log.waiting}


async def check_next_epoch(story: Story, node: NodeProcess) -> None:
    """It finds just what the log says: nothing to do but the one message that comes anew."""
    world = story.world
    had = len(world.entries())
    await node.start()
    producer = await world.producer()
    await world.put(producer, [Put(PROJECTS[0], b"", id="probe")])
    await world.handled("probe")
    assert 0 == await node.stop()
    assert ["probe"] == [entry.id for entry in world.entries()[had:]]
