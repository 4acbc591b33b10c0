"""Tests of M: the memory of a node, as the kernel sees it, when one queue has a huge backlog."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenlane.engine.producer.put import Put
from tests.ledger.process import NodeProcess
from tests.ledger.puts import one, some
from tests.ledger.world import ProcessWorld

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

MOST_ABOVE_IDLE = 60 << 20  # bytes
BODY = b"x" * 8_000  # so that the bodies of the backlog alone would exceed the bound
SLICE = 5_000


def rss(node: NodeProcess) -> int:
    """Resident bytes of the process."""
    pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
    return pages * 4096


def backlog(count: int, body: bytes, order: str = "") -> Iterator[list[Put]]:
    headers = {"order": order} if order else None
    for start in range(0, count, SLICE):
        numbers = range(start, min(start + SLICE, count))
        yield [Put("hot", body, id=f"h{number}", headers=headers) for number in numbers]


async def filled(world: ProcessWorld, producer, node: NodeProcess, count: int, body: bytes, order: str = "") -> int:
    """Put the backlog, and messages of others in between, which are handled at once. Return the highest memory."""
    most = 0
    for number, puts in enumerate(backlog(count, body, order)):
        await world.put(producer, puts)
        await served(world, producer, f"while-{number}")
        most = max(most, rss(node))
    await asyncio.sleep(1)  # the feed may lag: no event shows that it has caught up
    await served(world, producer, "after")
    return max(most, rss(node))


async def served(world: ProcessWorld, producer, name: str) -> None:
    """V: other projects are handled soon."""
    for project in ("acme", "bolt"):
        puts = some(project, name, 20)
        await world.put(producer, puts)
        await world.handled(*(put.id for put in puts), timeout=15)


@pytest.mark.parametrize(
    ("count", "body"),
    [(10_000, BODY), pytest.param(500_000, b"x" * 200, marks=pytest.mark.full)],
    ids=["bodies", "index"],
)
async def test_paused_backlog_takes_bounded_memory_and_resumes_in_order(world, count, body):
    """M, E8, E9, X4: memory stays within bounds while the backlog waits, and while it is handled."""
    node = await world.node("write")
    await world.topics("acme", "bolt")
    await world.topics("hot", state="paused")
    producer = await world.producer()
    await world.put(producer, [one("acme", "first")])
    await world.handled()
    idle = rss(node)
    most = await filled(world, producer, node, count, body)
    assert [] == world.refused
    assert [] == [own for own in world.ids() if own.startswith("h")]
    clock = asyncio.get_running_loop().time
    started = clock()
    await world.topics("hot", state="active")
    await world.handled(timeout=120)
    took, worked = clock() - started, rss(node)
    _log.info(
        "%d waiting: idle %.0f MB, +%.1f MB at most while waiting, +%.1f MB after; worked off in %.1f s",
        count, idle / 2**20, (most - idle) / 2**20, (worked - idle) / 2**20, took,
    )  # fmt: skip
    sequences = [entry.sequence for entry in world.entries() if entry.project == "hot"]
    assert sorted(sequences) == sequences
    assert count == len(set(sequences)) == len(sequences)
    assert most - idle < MOST_ABOVE_IDLE
    assert worked - idle < MOST_ABOVE_IDLE
    assert 0 == await node.stop()


async def test_backlog_of_slow_messages_is_read_ahead_up_to_a_bound(world):
    """M, E8, E9: other projects are served meanwhile."""
    node = await world.node("obey", concurrency=8)
    await world.topics("acme", "bolt", "hot")
    producer = await world.producer()
    await world.put(producer, [one("acme", "first")])
    await world.handled()
    idle = rss(node)
    most = await filled(world, producer, node, 10_000, BODY, "sleep 0.02")
    _log.info("10,000 slow ones: +%.1f MB at most", (most - idle) / 2**20)
    assert most - idle < MOST_ABOVE_IDLE
