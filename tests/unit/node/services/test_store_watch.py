"""F5: a node's reports of streams that can't be written, on the store in memory."""

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.base.troubles import Troubles
from evenlane.engine.core.ports import Lost, Unwritable
from evenlane.engine.node.services.store_watch import StoreWatch
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.until import until

ENV = "online"
FIRST, OTHERS = names.stream(ENV, LaneId("lanes", 0)), names.stream(ENV, LaneId("lanes", 5))
CANT, CAN = "a stream can't be written", "a stream can be written again"


class WatchedStore:
    def __init__(self) -> None:
        self.server, self.troubles = MemoryServer(), Troubles()
        self.store, self.partitions = MemoryStore(self.server, ENV), {0, 1}
        self.watch = StoreWatch(self.store, ENV, self.troubles, lambda: self.partitions)


@pytest.fixture
async def world():
    made = WatchedStore()
    await made.store.open()
    await made.store.prepare([LaneId(kind, number) for kind in ("lanes", "later") for number in range(8)])
    yield made
    await made.watch.close()
    await made.store.close()


async def test_failure_and_recovery_of_a_stream_are_logged_once(world):
    """The node's streams: shared ones, and both of each of its partitions."""
    world.server.fill_disk()
    with capture_logs() as lines:
        for _ in range(3):
            await world.watch.look()
        world.server.make_room()
        for _ in range(3):
            await world.watch.look()
    own = {*names.other_streams(ENV)} | {
        names.stream(ENV, LaneId(kind, number)) for kind in ("lanes", "later") for number in (0, 1)
    }
    assert own == {line["stream"] for line in lines if line["event"] == CANT}
    assert own == {line["stream"] for line in lines if line["event"] == CAN}
    assert 2 * len(own) == len(lines)
    assert {("the server can't write: no space left on its disk", True)} == {
        (line["reason"], line["restart"]) for line in lines if line["event"] == CANT
    }


async def test_node_is_not_ready_while_it_cannot_settle(world):
    world.server.fill_disk()
    await world.watch.look()
    sentence = "can't settle: the server can't write: no space left on its disk"
    assert world.troubles.current()["store"].startswith(sentence)
    assert world.troubles.not_ready.startswith(f"it {sentence}")
    world.server.make_room()
    await world.watch.look()
    assert ({}, "") == (world.troubles.current(), world.troubles.not_ready)


async def test_one_failed_stream_is_reported_but_keeps_the_node_ready(world):
    world.server.fill_disk(FIRST, why=Unwritable("the server has it offline: unsupported"))
    for _ in range(2):
        await world.watch.look()
    assert {
        "store": f"can't write all of its streams: the server has it offline: unsupported ({FIRST} of 8 streams)"
    } == world.troubles.current()
    assert "" == world.troubles.not_ready


async def test_node_reports_only_streams_of_its_partitions(world):
    """From the takeover of a partition until its release."""
    world.server.fill_disk(OTHERS)
    with capture_logs() as lines:
        await world.watch.look()
        assert [] == lines
        world.partitions = {5}
        await world.watch.look()
        world.partitions = {0}
        await world.watch.look()
    assert [(CANT, OTHERS)] == [(line["event"], line["stream"]) for line in lines]
    assert {} == world.troubles.current()


async def test_trouble_remains_while_the_store_is_unreachable(world):
    world.server.fill_disk()
    await world.watch.look()
    before = world.troubles.current()
    world.server.disconnect()
    with pytest.raises(Lost):
        await world.watch.look()
    assert before == world.troubles.current()


async def test_watch_looks_periodically_and_clears_its_trouble_on_close(world):
    world.server.fill_disk()
    world.watch.open()
    await until(lambda: "store" in world.troubles.current(), what="a look")
    world.server.disconnect()
    await world.watch.close()
    assert {} == world.troubles.current()
