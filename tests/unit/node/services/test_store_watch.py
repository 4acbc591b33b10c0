"""F5: what a node reports of streams that can't be written, on the store in memory."""

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


async def test_each_stream_has_one_line_at_its_beginning_and_one_at_its_end(world):
    """Of all that the node writes: those that it shares with others, and both of each of its partitions."""
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


async def test_a_node_that_can_settle_nothing_is_not_ready_until_it_can(world):
    world.server.fill_disk()
    await world.watch.look()
    sentence = "can't settle: the server can't write: no space left on its disk"
    assert world.troubles.current()["store"].startswith(sentence)
    assert world.troubles.not_ready.startswith(f"it {sentence}")
    world.server.make_room()
    await world.watch.look()
    assert ({}, "") == (world.troubles.current(), world.troubles.not_ready)


async def test_one_broken_stream_of_many_is_a_trouble_of_a_node_that_is_ready(world):
    world.server.fill_disk(FIRST, why=Unwritable("the server has it offline: unsupported"))
    for _ in range(2):
        await world.watch.look()
    assert {
        "store": f"can't write all of its streams: the server has it offline: unsupported ({FIRST} of 8 streams)"
    } == world.troubles.current()
    assert "" == world.troubles.not_ready


async def test_streams_of_other_nodes_are_theirs(world):
    """Whoever takes a partition over reports it; who gives it away says nothing more of it."""
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


async def test_what_was_found_stands_while_the_store_is_away(world):
    world.server.fill_disk()
    await world.watch.look()
    before = world.troubles.current()
    world.server.disconnect()
    with pytest.raises(Lost):
        await world.watch.look()
    assert before == world.troubles.current()


async def test_it_looks_by_itself_and_leaves_no_trouble_behind(world):
    """Another term begins with a look of its own."""
    world.server.fill_disk()
    world.watch.open()
    await until(lambda: "store" in world.troubles.current(), 5, "a look")
    world.server.disconnect()
    await world.watch.close()
    assert {} == world.troubles.current()
