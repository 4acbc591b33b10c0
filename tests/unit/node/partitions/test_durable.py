"""What survives: restarts, crashes, a newer owner, streams that are replaced, a store that goes away."""

import asyncio
import math
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane import settle_record
from evenlane.engine.errors import Fenced, UnknownEpoch
from evenlane.engine.node.tuning import Tuning
from evenlane.ring.membership.records import HeldLane, HeldRecord, PastOwner
from tests.support.node.world import CLUSTER_CONFIG, World, topic
from tests.support.store.feeding import logged
from tests.support.until import until


async def test_nothing_comes_again_after_a_clean_stop():
    """E11, D: a second epoch finds exactly what the settle log says."""
    async with World() as world:
        await world.put_many(200)
        node = await world.node()
        await until(lambda: len(world.handled) == 200)
        assert await node.stop(5)
        again = await world.node()
        await world.put(id="new")
        await until(lambda: "new" in world.ids)
        assert (201, 1) == (len(world.handled), again.counters.handled)


async def test_a_node_whose_take_over_is_broken_off_stops_at_once():
    """E7: the fence of that lane was sent, and who would have heard the answer is gone."""
    async with World() as world:
        node = await world.idle_node()
        fences = []

        def never_answered(*_record, **_options):
            fences.append(asyncio.get_running_loop().create_future())
            return fences[-1]

        node.store.append_log = never_answered
        opening = asyncio.create_task(node.take_over([0], world.next_epoch()))
        await until(lambda: len(fences) == 2)
        opening.cancel()
        await asyncio.wait([opening])
        async with asyncio.timeout(5):
            assert await node.stop(60)


async def test_crash_repeats_at_most_one_interval():
    """E11, D, L: after a crash only what was in flight or done within one interval comes again."""
    async with World() as world:
        await world.put_many(400)
        node = await world.node(concurrency=4, settle_interval=0.05)
        await until(lambda: len(world.handled) >= 100)
        lane = world.busy_lane
        durable = (await world.settled(lane)).settled.watermark
        done = len(world.handled)
        await world.crash(node)
        await world.node()
        await world.all_gone()
        assert 400 == len(set(world.ids))
        assert len(world.handled) - 400 <= done - durable + 4


async def test_pinned_lane_settles_in_the_log_and_is_erased_lazily():
    """E11, D: above a pinned watermark the log remembers what is settled; the lane is thinned out in time."""
    async with World(still=topic(state="paused"), acme=topic()) as world:
        await world.put(project="still")
        lane = world.busy_lane
        group = next(g for g in range(10) if _same_lane(g, lane))
        await world.put_many(300, group=group)
        node = await world.node(tuning=Tuning(pinned_for=0))
        await until(lambda: world.waiting() == 1, what="all but the pinned one to be deleted")
        assert 300 == len(world.handled)
        assert 0 == node.partitions[lane.partition].lane.removal.durable_watermark
        await world.crash(node)
        await world.node(tuning=Tuning(pinned_for=0))
        await world.put(id="new", group=group)
        await until(lambda: "new" in world.ids)
        assert 301 == len(world.handled)


def _same_lane(group, lane):
    from evenlane.ring.hashing import partition_of

    return partition_of("acme", group, 2, CLUSTER_CONFIG.partitions) == lane.partition


async def test_newer_owner_fences_the_older():
    """O: a zombie's append is refused; it settles nothing more and says so."""
    reasons = []
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(10)
        old = await world.node(handle, on_stop=reasons.append)
        await until(lambda: len(old.workers.running) == 8)
        await world.node()
        await world.all_gone()
        gate.set()
        await until(lambda: reasons)
        assert "newer owner" in reasons[0]
        assert not await old.stop(0.2)


async def test_an_older_epoch_takes_nothing_over():
    """O: who comes with an epoch older than the log's is refused."""
    async with World() as world:
        await world.put()
        await world.node()
        await world.all_gone()
        late = await world.node()
        with pytest.raises(Fenced):
            await late.take_over([0], 1)


class TestAnEpochThatEtcdDoesNotKnow:
    """O, F2, F3: the settle log was written under it, so etcd has gone back."""

    @pytest.fixture
    async def world(self):
        async with World() as world:
            await world.put()
            await world.node()
            await world.all_gone()
            yield world

    @staticmethod
    def epoch(world):
        return next(iter(world.nodes[0].partitions.values())).lane.epoch

    async def test_its_owner_may_serve_unless_its_end_is_known(self, world):
        first, late = self.epoch(world), await world.idle_node()
        with pytest.raises(UnknownEpoch) as found:
            await late.owned.open(0, first + 9, (), known={PastOwner(first - 1, 0)})
        assert first == found.value.epoch
        assert {} == late.partitions
        await late.owned.open(0, first + 9, (), known={PastOwner(first, 0)})
        assert [0] == [*late.partitions]

    async def test_an_epoch_that_is_given_twice_is_told_apart_by_its_lease(self, world):
        """O: after etcd went back, another owner may have had the same one. Older releases name no lease."""
        first, late = self.epoch(world), await world.idle_node()
        await late.owned.open(0, first + 9, (), known={PastOwner(first, 5)}, lease=8)
        third = await world.idle_node()
        with pytest.raises(UnknownEpoch) as found:
            await third.owned.open(0, first + 19, (), known={PastOwner(first + 9, 7)}, lease=9)
        assert (first + 9, 8) == (found.value.epoch, found.value.lease)
        with pytest.raises(UnknownEpoch):
            await third.owned.open(0, first + 19, [self.released(first + 9, 7)], known=set(), lease=9)
        await third.owned.open(0, first + 19, [self.released(first + 9, 8)], known=set(), lease=9)
        assert [0] == [*third.partitions]

    @staticmethod
    def released(epoch, lease):
        """What an owner leaves whose logs couldn't say in time that its end was clean."""
        lanes = {kind: HeldLane(created="") for kind in ("lanes", "later")}
        return HeldRecord(id="former", epoch=epoch, lease=lease, lanes=lanes)

    @pytest.mark.parametrize("writer", ["another owner", "an older release"])
    async def test_an_append_without_answer_is_known_by_its_lease_as_well(self, world, writer):
        """O: a record of the same epoch and number may be another owner's, unless it names no lease."""
        reasons, number, epoch = [], world.partition_of(0), self.epoch(world) + 9
        await world.crash(world.nodes[0])
        node = await world.idle_node(on_fenced=reasons.append)
        await node.owned.open(number, epoch, lease=5)
        lane = node.partitions[number].lane
        records, position = await logged(world.store, lane.id)
        last = settle_record.decode(records[-1])
        assert (lane.epoch, 5) == (last.epoch, last.lease)
        theirs = replace(last, number=last.number + 1, lease=8 if writer == "another owner" else 0)
        await world.store.append_log(lane.id, settle_record.encode(theirs), position, checkpoint=True)
        await world.put()
        await until(lambda: lane.fenced or lane.log.durable_number == theirs.number)
        assert (writer == "another owner") == lane.fenced == bool(reasons)
        assert not reasons or "a newer owner has taken over" in reasons[0]

    async def test_one_that_ended_cleanly_is_not_waited_for(self, world):
        first, late = self.epoch(world), await world.idle_node()
        await world.nodes[0].stop(1.0, process_ends=True)
        await late.owned.open(0, first + 9, (), known={PastOwner(first - 1, 0)})
        assert [0] == [*late.partitions]

    @pytest.mark.parametrize("lower", [0, 1])
    async def test_the_own_one_must_be_higher_all_the_same(self, world, lower):
        """One that is equal is another's, too."""
        first, late = self.epoch(world), await world.idle_node()
        await world.nodes[0].stop(1.0, process_ends=True)
        with pytest.raises(UnknownEpoch) as found:
            await late.owned.open(0, first - lower, (), known={PastOwner(first - 5, 0)})
        assert first == found.value.epoch


async def test_connection_comes_and_goes():
    """L, D: while the store is away nothing is lost, and nothing is handled twice for it."""
    async with World() as world:
        node = await world.node()
        for round_ in range(5):
            await world.put_many(50)
            world.server.disconnect(node.store)
            await asyncio.sleep(0.02 * round_)
            world.server.reconnect(node.store)
        await world.all_gone()
        assert 250 == len(world.handled)
        assert 250 == len({(m.stream, m.sequence) for m in world.handled})


async def test_settling_that_lags_stops_dispatch():
    """D: what is done but not durable is bounded: nothing new starts while the log doesn't answer."""
    async with World() as world:
        hands = asyncio.Event()

        async def wait(message):
            await hands.wait()
            world.handled.append(message)

        node = await world.node(wait, settle_interval=0.02)
        for n in range(100):
            world.store.put(names.lane_subject("online", 0, "acme", 0, "mid"), b"", b"%d" % n)
        await until(lambda: len(node.workers.running) == 8)
        world.server.delay_acks()
        hands.set()
        await until(lambda: node.settler.lagging)
        before = len(world.handled)
        for n in range(100):
            world.store.put(names.lane_subject("online", 0, "acme", 0, "mid"), b"", b"%d" % n)
        await until(lambda: node.backlog + node.gate.held == 200 - before)
        await asyncio.sleep(0.1)
        assert before == len(world.handled)
        world.server.delay_acks(0)
        await world.all_gone()
        assert 200 == len(world.handled)


async def test_replaced_stream_is_begun_anew():
    """L: a stream that was deleted and made again gives its new messages under old sequences: all are handled."""
    async with World() as world:
        await world.put_many(50)
        node = await world.node()
        await world.all_gone()
        lane = LaneId("lanes", world.handled[0].partition)
        world.server.replace("online", lane)
        new = await world.put_many(50)
        await world.all_gone()
        assert set(new) <= set(world.ids)
        assert 100 == len(world.handled)
        assert 1 == node.partitions[lane.partition].lane.generation


async def test_replaced_stream_is_noticed_at_the_next_start():
    """L: the settle log of another stream is void."""
    async with World() as world:
        await world.put_many(50)
        node = await world.node()
        await world.all_gone()
        await world.crash(node)
        lane = LaneId("lanes", world.handled[0].partition)
        world.server.replace("online", lane)
        new = await world.put_many(50)
        await world.node()
        await world.all_gone()
        assert set(new) <= set(world.ids)


@pytest.mark.parametrize("alive", [True, False])
async def test_rolled_back_stream_gives_sequences_again(alive):
    """L: after a roll-back other messages have the sequences of settled ones: none of them is skipped or purged."""
    async with World(still=topic(state="paused"), acme=topic()) as world:
        await world.put(project="still")
        lane = world.busy_lane
        group = next(g for g in range(10) if _same_lane(g, lane))
        await world.put_many(60, group=group)
        node = await world.node()
        await until(lambda: len(world.handled) == 60)
        await until(lambda: not node.partitions[lane.partition].lane.log.unsynced_count)
        if not alive:
            await world.crash(node)
        world.server.roll_back("online", lane, 10)
        new = await world.put_many(60, group=group)
        if not alive:
            await world.node()
        await until(lambda: set(new) <= set(world.ids), what="all that was put after the roll-back")


async def test_results_of_a_replaced_stream_are_void():
    """L: what was running when the stream was replaced must not settle another message's sequence."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            if message.body == b"old":
                await gate.wait()
            world.handled.append(message)

        for _ in range(4):
            await world.put(b"old")
        node = await world.node(handle)
        await until(lambda: len(node.workers.running) == 4)
        world.server.replace("online", LaneId("lanes", node.workers.running[0].partition))
        new = [await world.put(b"new") for _ in range(4)]
        await until(lambda: set(new) <= set(world.ids))
        gate.set()
        await world.all_gone()
        assert 4 == node.counters.void
        assert 4 == node.counters.handled


async def test_refused_dead_letters_leave_the_original():
    """E13, fault 16: if the copy can't be put the original stays; other projects go on; later all ends."""
    async with World(bad=topic(max_attempts=1), acme=topic()) as world:
        world.server.refuse("dead.")

        async def handle(message):
            if message.project == "bad":
                raise ValueError("no")
            world.handled.append(message)

        await world.put_many(3000, project="bad")
        node = await world.node(handle)
        await until(lambda: "bad" in node.queues._withheld, what="the project to be held")
        put = await world.put_many(20)
        await until(lambda: set(put) <= set(world.ids))
        assert node.failures.pending < 1500
        assert (0, 0) == (node.counters.dead, len(world.dead()))
        world.server.accept("dead.")
        await world.all_gone(60)
        assert 3000 == len(world.dead())


async def test_retry_survives_a_crash():
    """K2, L: what waits for its next attempt stands in the later stream and is handled by the next owner."""
    async with World(acme=topic(backoff={"base": 0.5, "factor": 1, "jitter": 0})) as world:

        async def handle(message):
            if message.attempt == 1:
                raise ValueError("once")
            world.handled.append(message)

        await world.put_many(40)
        node = await world.node(handle)
        await until(lambda: node.counters.retried == 40)
        await world.crash(node)
        await world.node(handle)
        await world.all_gone()
        assert 40 == len(set(world.ids))


async def test_drain_waits_for_what_runs_and_starts_nothing():
    """Fault 3: a drain ends what was begun, settles it, and leaves the rest for the next owner."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(50)
        node = await world.node(handle)
        await until(lambda: len(node.workers.running) == 8)
        stopping = asyncio.create_task(node.stop(5))
        await asyncio.sleep(0.05)
        gate.set()
        assert await stopping
        assert 8 == len(world.handled)
        world.nodes.remove(node)
        await node.store.close()
        await world.node()
        await world.all_gone()
        assert 50 == len(world.handled)


async def test_drain_ends_in_time_all_the_same():
    """Fault 4: a handler that never ends doesn't keep the node from stopping; its message comes again."""
    async with World() as world:
        await world.put()
        node = await world.node(lambda_forever)
        await until(lambda: node.workers.running)
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert not await node.stop(1.0)
        assert loop.time() - start < 2
        world.nodes.remove(node)
        await node.store.close()
        await world.node()
        await world.all_gone()
        assert 1 == len(world.handled)


async def lambda_forever(message):
    await asyncio.Event().wait()


async def test_store_goes_away_during_the_take_over():
    """E14, L: a take-over that is cut off is begun again, and nothing comes twice for it."""
    async with World() as world:
        await world.put_many(200)
        first = await world.node()
        await until(lambda: len(world.handled) == 200)
        assert await first.stop(5)
        await first.store.close()
        world.nodes.remove(first)
        await world.put_many(100)
        starting = asyncio.create_task(world.node())
        await until(lambda: len(world.server.stores) == 2)
        for _ in range(3):
            await asyncio.sleep(0.01)
            world.server.disconnect()
            await asyncio.sleep(0.05)
            world.server.reconnect()
        await starting
        await world.all_gone()
        assert 300 <= len(world.handled) <= 300 + 8
        assert 300 == len(set(world.ids))


async def test_a_part_that_fails_ends_the_node(monkeypatch):
    """W: a defect in the scheduler, say, must not leave a node that looks alive and does nothing."""
    reasons = []
    async with World() as world:
        node = await world.node(on_stop=reasons.append)

        def broken(now):
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr(node.scheduler, "next", broken)
        await world.put()
        await until(lambda: reasons)
        assert "has failed: ZeroDivisionError: a defect" in reasons[0]


class Held:
    """What is asked of `call` waits until `go`."""

    def __init__(self, call):
        self._call = call
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, *arguments):
        self.reached.set()
        await self.go.wait()
        return await self._call(*arguments)


@pytest.mark.parametrize(
    ("waits_for", "noticed"),
    [
        ("the stream's identity", ""),
        ("the stream's identity", "and looked into"),
        ("its turn", "not looked into"),
        ("its turn", "and looked into"),
    ],
)
async def test_a_planned_delete_never_hits_another_message(waits_for, noticed):
    """L: what was to be deleted before a roll-back is another message after it, however much of that is known here."""
    async with World(still=topic(state="paused"), acme=topic()) as world:
        await world.put(project="still")
        lane = world.busy_lane
        group = next(g for g in range(10) if _same_lane(g, lane))
        node = await world.node()
        settler, own = node.settler, node.partitions[lane.partition].lane
        settler.truncator.pinned_for = math.inf
        await world.put_many(60, group=group)
        await until(lambda: len(world.handled) == 60 and not own.log.unsynced_count)
        if waits_for == "its turn":
            held = Held(settler.truncator._limiter.acquire)
            settler.truncator._limiter = SimpleNamespace(acquire=held)
        else:
            held = Held(node.verifier.verify)
            settler.truncator._verifier = SimpleNamespace(verify=held)
        settler.truncator.pinned_for = 0
        await until(held.reached.is_set, what="the delete of all 60 to be planned")
        planned = settler.truncator.tasks.by_lane[own]

        world.store.lane(lane).roll_back(10)
        await world.put_many(50, project="still")  # fewer than before: no feed is given them
        if noticed:
            node.store.elected()
        if noticed == "and looked into":
            await node.verifier.verify(own)
            assert 1 == own.generation
        put = _above(world, lane, 10)
        held.go.set()
        await planned
        assert (50, put) == (len(put), _above(world, lane, 10))
        await until(lambda: world.waiting() == 1 + 50, what="all but the pinned ones to be deleted")


def _above(world, lane, sequence):
    """The messages of the lane from there on."""
    return [each for each in world.server.messages(names.stream("online", lane)) if each.sequence > sequence]
