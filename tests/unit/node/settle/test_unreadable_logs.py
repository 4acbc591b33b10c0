"""L, O, F4: records of the settle log with an unknown version, of a newer release or of a foreign client."""

import msgspec
import pytest
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
from evenlane.engine.core.records.settle_record import UnknownVersion
from evenlane.engine.node.settle.settle_log_reader import read_settle_log
from tests.support.node.two import P, lane_of
from tests.support.node.world import LANES, World
from tests.support.store.feeding import logged
from tests.support.until import until

LANE = lane_of("lanes")
STREAM = names.settled_stream("online")


async def write(world, epoch, lane=LANE, *, checkpoint=False):
    """Append a record of version 3, as a newer release or a foreign client does. Returns its sequence."""
    _, position = await world.store.read_log(lane)
    body = msgspec.msgpack.encode([3, epoch, 1, {"of": "a later form"}])
    return await world.store.append_log(lane, body, position, checkpoint=checkpoint)


def delete(world, sequence):
    """`nats stream rmm`."""
    stream = world.server.stream(STREAM)
    del stream.messages[sequence]
    stream.last_of = {message.subject: each for each, message in stream.messages.items()}


async def handled(world, count):
    await until(lambda: len(world.handled) >= count)


async def test_owner_skips_records_of_foreign_clients():
    """F4: its next record is a checkpoint, which replaces them."""
    fenced = []
    async with World() as world:
        node = await world.node(on_fenced=fenced.append)
        for turn in range(1, 4):
            with capture_logs() as logs:
                for lane in LANES:
                    await write(world, turn % 2, lane)
                await world.put_many(20)
                await world.all_gone()
            events = {each["event"] for each in logs if each["log_level"] != "debug"}
            assert {"the settle log holds records that are none: passed over"} == events
            mine = LaneId("lanes", world.partition_of(0))
            assert not any(b"a later form" in body for body in (await logged(world.store, mine))[0])
        assert await node.stop(5)
        await world.node()
        await world.put(id="new")
        await until(lambda: "new" in world.ids)
        assert (61, []) == (len(world.handled), fenced)


async def test_newer_owner_of_a_newer_release_fences():
    """O: by its epoch."""
    fenced = []
    async with World() as world:
        node = await world.node(on_fenced=fenced.append)
        sequence = await write(world, 5, checkpoint=True)
        await world.put_many(5, group=world.group_in(P))
        await until(lambda: fenced)
        assert node.partitions[P].lane.fenced
        assert "a record of version 3, and this release knows versions up to 2" in fenced[0]
        assert f"(stream {STREAM}, sequence {sequence})" in fenced[0]
        assert 1 == len((await logged(world.store, LANE))[0]), "the fenced owner has written nothing"


async def test_takeover_waits_for_an_unreadable_log():
    """L: otherwise settled messages would be handled again. It goes on once the log is readable."""
    troubles = Troubles()
    async with World() as world:
        node = await world.node()
        await world.put_many(20)
        await world.all_gone()
        assert await node.stop(5)
        sequence = await write(world, 2)
        await world.put_many(20)
        reader = await world.idle_node(unreadable=UnreadableRecords(troubles))
        opening = world.opening(reader)
        await until(troubles.current)
        sentence = troubles.current()["settle_log"]
        assert sentence.startswith(f"can't take over partition {P}: the settle log holds a record of version 3, and")
        assert f"if no node of yours wrote it, delete it: `nats stream rmm {STREAM} {sequence}`" in sentence
        assert "" == troubles.not_ready, "it works on the other partitions"
        assert not reader.lanes.is_served(P)
        assert (0, len(opening)) == (sum(task.done() for task in opening if task.get_name() == str(P)), 2)
        delete(world, sequence)
        await handled(world, 40)
        await until(lambda: not troubles.current())
        await world.all_gone()
        assert 40 == len(world.handled)


async def test_cancelled_takeover_clears_its_trouble():
    """The partition is another node's, or the session has ended."""
    troubles = Troubles()
    async with World() as world:
        await write(world, 2)
        node = await world.idle_node(unreadable=UnreadableRecords(troubles))
        opening = world.opening(node)
        await until(troubles.current)
        for task in opening:
            task.cancel()
        await until(lambda: not troubles.current())


async def test_logs_of_another_node_can_be_read():
    """U2: so a node knows that it could take the partition over."""
    async with World() as world:
        node = await world.idle_node()
        await node.owned.read_logs(P)
        sequence = await write(world, 2, lane_of("later"))
        with pytest.raises(UnknownVersion):
            await node.owned.read_logs(P)
        delete(world, sequence)
        await node.owned.read_logs(P)


async def test_error_names_the_sequence_of_the_record():
    """E7: `backlog` reads settle logs, too."""
    async with World() as world:
        sequence = await write(world, 2)
        with pytest.raises(UnknownVersion, match=f"sequence {sequence}"):
            await read_settle_log(world.store, LANE)
