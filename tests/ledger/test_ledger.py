"""The ledger test: every acknowledged message is accounted for through crashes of servers and nodes."""

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from tests.ledger import settle_logs
from tests.ledger.handlers import fails
from tests.ledger.process import NodeProcess
from tests.ledger.replay import check_handled_twice, check_repeats, crashes
from tests.ledger.settle_logs import Log
from tests.ledger.world import ProcessWorld
from tests.support.promises.history import Fault
from tests.support.until import until

_log = logging.getLogger(__name__)

PROJECTS = [f"tenant-{number:03d}" for number in range(300)]
PRIORITIES = ("high", "mid", "low")
PARTITIONS = {10_000: 32, 100_000: 128}  # by the number of messages
CONCURRENCY = 64
NAMED = CONCURRENCY  # messages in an in-flight record: those that run, and those about to start
# Attempts that failed right before a death: their copies are stored, and their originals aren't settled yet.
COPIED = 576
FAULTS = 3  # of each kind
SLICE = 1_000  # messages put at once


@dataclass
class Crash:
    """A killed node, and the settle logs before another process had read them."""

    pid: int
    entries_before: int
    logs: dict[str, Log]


@dataclass
class Story:
    world: ProcessWorld
    messages: int
    partitions: int
    rate: int  # msg/s
    crashes: list[Crash] = field(default_factory=list)
    outages: list[Fault] = field(default_factory=list)  # of nats-server

    async def load(self, producer: Producer) -> None:
        """Put all messages, evenly spread over the time of the faults."""
        clock = asyncio.get_running_loop().time
        start = clock()
        for first in range(0, self.messages, SLICE):
            numbers = range(first, min(first + SLICE, self.messages))
            await self.world.put(producer, [_message(number) for number in numbers])
            await asyncio.sleep(max(0.0, start + numbers.stop / self.rate - clock()))

    async def disturb(self, node: NodeProcess) -> None:
        """Kill nats-server and the node in turn, each under load."""
        for number in range(FAULTS):
            await self._reached((2 * number + 1) / (2 * FAULTS + 1))
            began = time.monotonic_ns()
            await self.world.servers.nats.kill()
            await self.world.servers.nats.start()
            # The outage itself repeats nothing, but a copy that NATS didn't take is put again only after a pause.
            self.outages.append(Fault("acks late", began, end=time.monotonic_ns()))
            await self._recovered()
            await self._reached((2 * number + 2) / (2 * FAULTS + 1))
            await node.kill()
            logs = await settle_logs.read(self.world.settings, self.partitions)
            self.crashes.append(Crash(node.pid, len(self.world.entries()), logs))
            await node.start()
            await self._recovered()

    async def _reached(self, share: float) -> None:
        await until(lambda: len(self.world.acknowledged) >= share * self.messages, 120, "the load")

    async def _recovered(self) -> None:
        """Wait until all messages put so far have begun, so that the next fault hits a node that has recovered."""
        left, read = set(self.world.acknowledged), 0

        def all_begun() -> bool:
            nonlocal read
            fresh = self.world.entries()[read:]
            read += len(fresh)
            left.difference_update(entry.id for entry in fresh)
            return not left

        await until(all_begun, 120, "the messages put so far to begin")


def _message(number: int) -> Put:
    project = PROJECTS[number % len(PROJECTS)]
    return Put(project, b"%d" % number, priority=PRIORITIES[number // 7 % 3], id=f"m{number}")


@pytest.mark.real
@pytest.mark.parametrize("messages", [10_000, pytest.param(100_000, marks=pytest.mark.full)])
async def test_acknowledged_messages_are_accounted_for_through_crashes(tmp_path, messages):
    """L, D, K4, K7, E11: three kill -9 of nats-server and three of the node, in the middle of the load."""
    partitions = PARTITIONS[messages]
    async with ProcessWorld(tmp_path, partitions=partitions, group_qps=50_000) as world:
        node = await world.node("flaky", concurrency=CONCURRENCY)
        await world.topics(*PROJECTS)
        producer = await world.producer()
        story = Story(world, messages, partitions, rate=4_000)
        async with asyncio.TaskGroup() as group:
            group.create_task(story.load(producer))
            group.create_task(story.disturb(node))
        dead = await world.dead_letters()
        acknowledged = set(world.acknowledged)
        hopeless = {own for own in acknowledged if all(fails(own, attempt) for attempt in (1, 2, 3))}
        await world.ended(dead, timeout=120)
        # (a message and its copy, if both are stored, end one after the other)
        await until(lambda: _nothing_waits(story), 30, "all streams to be settled")
        assert 0 == await node.stop()

        check_chains(story)
        check_repetitions(story)
        dead_letters = Counter(dead_letter.id for dead_letter in await dead.read())
        # (a message in flight at a death had one more attempt, in which it may have succeeded)
        assert hopeless - dead_letters.keys() <= {entry.id for entry in world.entries() if entry.attempt > 3}
        assert len(dead_letters.keys() - hopeless) <= len(story.crashes) * NAMED
        # (and if it had failed and been copied before, both the copy and the original end)
        assert dead_letters.total() - len(dead_letters) <= len(story.crashes) * COPIED
        final = await settle_logs.read(world.settings, partitions)
        for crash in story.crashes:
            check_log(story, crash)
        check_end(final)
        await check_next_epoch(story, node)


def check_chains(story: Story) -> None:
    """Each message had the right attempts, and no message was handled that was never put."""
    seen: dict[str, set[tuple[int, str]]] = {}
    for entry in story.world.entries():
        seen.setdefault(entry.id, set()).add((entry.attempt, entry.what))
    maybe = {f"m{number}" for number in range(story.messages)} - story.world.acknowledged.keys()
    assert set() == seen.keys() - story.world.acknowledged.keys() - maybe
    wrong = {own: chain for own, chain in seen.items() if chain != _chain(own)}
    # A message in flight at a death had one more attempt, which left no entry if it hadn't begun (X11).
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


def check_repetitions(story: Story) -> None:
    """D: only messages of a killed node were repeated: those in flight, and those that ended too late to be settled. So
    the kills of nats-server repeated nothing, though they held up settling. No message is stored under two sequences,
    except for retries whose originals weren't settled when their node died: these begin with the next attempt, which
    may succeed.
    """
    entries, killed = story.world.entries(), {crash.pid for crash in story.crashes}
    repeats = check_repeats(entries, *crashes(entries, killed), *story.outages)
    twice = check_handled_twice(entries, killed, *story.outages)
    _log.info("repeated after %d kills of the node: %d; handled twice: %d", len(killed), repeats, len(twice))
    stored = {entry.id: (entry.stream, entry.sequence) for entry in entries if entry.what == "ok"}
    elsewhere = {e.id for e in entries if e.what == "ok" and stored[e.id] != (e.stream, e.sequence)}
    assert len(elsewhere) <= len(killed) * COPIED


def check_log(story: Story, crash: Crash) -> None:
    """E11: later epochs handled exactly the messages that the logs left open. All messages that the logs call settled,
    or that were removed from the streams, had been handled.
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
    # A retry in the in-flight record had one more attempt, and is dead if that was its last.
    unhandled = waiting - after
    assert all(stream.startswith("LATER") for stream, _ in unhandled)
    assert len(unhandled) <= NAMED


async def _nothing_waits(story: Story) -> bool:
    logs = await settle_logs.read(story.world.settings, story.partitions)
    return not any(log.waiting for log in logs.values())


def check_end(final: dict[str, Log]) -> None:
    """Check that a clean end leaves nothing open."""
    assert {} == {stream: log.waiting for stream, log in final.items() if log.waiting}


async def check_next_epoch(story: Story, node: NodeProcess) -> None:
    """Check that the next epoch handles only the one new message."""
    world = story.world
    had = len(world.entries())
    await node.start()
    producer = await world.producer()
    await world.put(producer, [Put(PROJECTS[0], b"", id="probe")])
    await world.handled("probe")
    assert 0 == await node.stop()
    assert ["probe"] == [entry.id for entry in world.entries()[had:]]
