"""The leader gathers neighbouring partitions while nothing else happens: real nodes on etcd in memory, virtual time."""

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import structlog

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.leader.placement_controller import PlacementController
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.ring.coordination.ports import Unavailable
from evenlane.ring.membership.records import HeldRecord, LeaderRecord, PlanRecord, decode, encode
from evenlane.ring.placement.bounded import place_in_bounds
from tests.support.membership_cluster import ENV, Client, MembershipCluster, key
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.control.leader.placement_cluster import FakeTopicCache

PARTITIONS = 60
NAMES = "abcdef"
IN_TURN = {number: NAMES[number % 6] for number in range(PARTITIONS)}
MINUTE = 60


def count_touched(owners):
    """The nodes that each window of 6 partitions touches, summed over all windows."""
    return sum(len({owners[(start + at) % PARTITIONS] for at in range(6)}) for start in range(PARTITIONS))


class Leading:
    """The leader: its client of etcd, and the topics that it knows."""

    def __init__(self, client, config):
        self.client, self.config, self.topic_cache = client, config, FakeTopicCache()

    def put_topic(self, project, qps):
        self.topic_cache.put(project, qps, self.config)


@asynccontextmanager
async def scattered(strategy=place_in_bounds, make_client=Client):
    """Six nodes that serve the partitions in turn, and a leader. Yields the cluster, its nodes and the leader."""
    async with MembershipCluster(PARTITIONS) as cluster:
        nodes = await cluster.join(*NAMES)
        await cluster.own(**{name: list(range(at, PARTITIONS, 6)) for at, name in enumerate(NAMES)})
        config = ClusterConfig(partitions=PARTITIONS, layout="consecutive", max_group_qps=1_000_000)
        leading = Leading(make_client(cluster.client.store), config)
        placement = PlacementController(
            leading.client, ENV, config, leading.topic_cache, ("tested", strategy), RecordReader(ENV)
        )
        controller = TopicController(leading.client, ENV, config, "l", 600, other_controllers=placement.serve)
        await controller.start()
        try:
            yield cluster, nodes, leading
        finally:
            await controller.close()
            await asyncio.sleep(20)  # the partitions of the last plan move


def plans_of(cluster):
    """The owners by partition, at first and after each plan of the leader."""
    planned, found, generation = dict(IN_TURN), [], 1
    for event in cluster.client.store.events_after(0, key("plan", "")):
        if event.kind == "put":
            name = event.item.key.rpartition("/")[2]
            record = decode(PlanRecord, event.item.key, event.item.value)
            if record.generation > generation:
                found.append(dict(planned))
                generation = record.generation
            planned |= dict.fromkeys(record.partitions, name)
    return [*found, planned]


@in_virtual_time
async def test_cluster_at_rest_is_gathered():
    """P13: each step is a plan of a few partitions, and all of them are served between two steps."""
    async with scattered() as (cluster, _nodes, _leading):
        await asyncio.sleep(4.5 * MINUTE)
        assert IN_TURN == await cluster.owners()
        await asyncio.sleep(15 * MINUTE)
        owners = await cluster.owners()
        plans = plans_of(cluster)
    assert owners == plans[-1]
    assert count_touched(owners) <= 0.45 * count_touched(IN_TURN)
    moves = [sum(one[each] != other[each] for each in one) for one, other in pairwise(plans)]
    assert len(moves) > 3
    assert 0 < min(moves) <= max(moves) <= PARTITIONS // 6
    assert {10} == {list(owners.values()).count(name) for name in NAMES}


@in_virtual_time
async def test_gathered_cluster_moves_nothing_more():
    """P13: gathering comes to an end."""
    async with scattered() as (cluster, _nodes, _leading):
        await asyncio.sleep(30 * MINUTE)
        owners, revision = await cluster.owners(), len(plans_of(cluster))
        await asyncio.sleep(120 * MINUTE)
        assert (owners, revision) == (await cluster.owners(), len(plans_of(cluster)))


@in_virtual_time
async def test_nothing_is_gathered_while_nodes_come_and_go():
    """P13: a node restarts every four minutes; the leader plans for that alone. Gathering begins once it ends."""
    async with scattered() as (cluster, nodes, _leading):
        last = nodes[-1]
        for _ in range(2):
            last.leaving = True
            assert await last.membership.leave(10, 20)
            await last.end()
            cluster.nodes.remove(last)
            last = await cluster.join("f")
            await asyncio.sleep(20)
            planned = len(plans_of(cluster))
            await asyncio.sleep(4 * MINUTE)
            assert planned == len(plans_of(cluster))
        assert count_touched(await cluster.owners()) > 0.6 * count_touched(IN_TURN)
        await asyncio.sleep(15 * MINUTE)
        assert count_touched(await cluster.owners()) <= 0.45 * count_touched(IN_TURN)


@in_virtual_time
async def test_node_that_comes_interrupts_gathering():
    """P13: the next step is made no sooner than 5 minutes later."""
    async with scattered() as (cluster, _nodes, _leading):
        await asyncio.sleep(5.2 * MINUTE)
        assert len(plans_of(cluster)) > 1
        await cluster.join("g")
        await asyncio.sleep(2)
        assert "g" in plans_of(cluster)[-1].values()
        joined = len(plans_of(cluster))
        await asyncio.sleep(4.5 * MINUTE)
        assert joined == len(plans_of(cluster))
        await asyncio.sleep(1 * MINUTE)
        assert joined < len(plans_of(cluster))


@in_virtual_time
async def test_step_waits_for_a_handler_of_the_last_one():
    """P13: while a handler runs under a former owner, its handoff isn't over."""
    async with scattered() as (cluster, _nodes, _leading):
        held = key("held", 3, 7)
        await cluster.client.put(held, encode(HeldRecord(id="a", epoch=7)), await cluster.client.grant(7200))
        await asyncio.sleep(20 * MINUTE)
        assert IN_TURN == await cluster.owners()
        await cluster.client.delete(held)
        await asyncio.sleep(2 * MINUTE)
        assert IN_TURN != await cluster.owners()


class SometimesDeaf(Client):
    """Doesn't list owners after the first time, until `answers`."""

    asked, answers = 0, False

    async def list(self, prefix):
        if prefix == key("owners", ""):
            self.asked += 1
            if self.asked > 1 and not self.answers:
                raise Unavailable("no answer")
        return await super().list(prefix)


@in_virtual_time
async def test_question_without_an_answer_is_asked_again():
    """P13: the leader goes on leading, and gathers later."""
    async with scattered(make_client=SometimesDeaf) as (cluster, _nodes, leading):
        await asyncio.sleep(10 * MINUTE)
        assert IN_TURN == await cluster.owners()
        leading.client.answers = True
        await asyncio.sleep(2 * MINUTE)
        assert IN_TURN != await cluster.owners()


@in_virtual_time
async def test_change_of_loads_comes_before_the_next_step():
    """P13: a topic changes while the leader asks whether the last plan is carried out. The plan for it comes first."""
    async with scattered() as (cluster, _nodes, leading):
        await asyncio.sleep(4.9 * MINUTE)
        gate = leading.client.gates["held"] = asyncio.Event()
        await until(lambda: leading.client.waiting)
        leading.put_topic("large", 1_000)
        leading.client.gates.clear()
        gate.set()
        await asyncio.sleep(1)
        assert IN_TURN == await cluster.owners()
        assert 1 == len(plans_of(cluster))
        await asyncio.sleep(15 * MINUTE)
        assert count_touched(await cluster.owners()) <= 0.6 * count_touched(IN_TURN)


@in_virtual_time
async def test_step_of_a_deposed_leader_is_not_written():
    """P4, P13: another process leads by the time that the step is written."""
    async with scattered() as (cluster, _nodes, leading):
        await asyncio.sleep(4.9 * MINUTE)
        leading.client.late["plan"] = asyncio.Event()
        await until(lambda: leading.client.delayed)
        await cluster.client.delete(key("leader"))
        await cluster.client.put(key("leader"), encode(LeaderRecord(id="other")))
        leading.client.late.pop("plan").set()
        await asyncio.sleep(10 * MINUTE)
        assert IN_TURN == await cluster.owners()
        assert 1 == len(plans_of(cluster))


# ---- strategies of other packages


class Asked:
    """A strategy that passes requests on, and notes those in which partitions may move."""

    def __init__(self, strategy):
        self.strategy, self.at_rest = strategy, 0

    def __call__(self, request):
        self.at_rest += request.gather_moves > 0
        return self.strategy(request)


def keep(request):
    return [request.present.get(number, request.nodes[0].name) for number in range(PARTITIONS)]


def fail_to_gather(request):
    if request.gather_moves:
        raise KeyError("rack")
    return keep(request)


def move_all(request):
    owners = keep(request)
    return [*owners[1:], owners[0]] if request.gather_moves else owners


@in_virtual_time
@pytest.mark.parametrize(
    ("strategy", "error"),
    [
        (keep, None),
        (fail_to_gather, "the placement strategy failed: KeyError: 'rack'"),
        (move_all, "the placement strategy moves more partitions (60) than `gather_moves` (10)"),
    ],
)
async def test_strategy_that_does_not_gather_keeps_its_placement(strategy, error):
    """C2: it is asked once in a rest, and a defect is logged."""
    asked = Asked(strategy)
    with structlog.testing.capture_logs() as log:
        async with scattered(asked) as (cluster, _nodes, _leading):
            await asyncio.sleep(20 * MINUTE)
            assert IN_TURN == await cluster.owners()
    assert 1 == asked.at_rest
    assert ([error] if error else []) == [line["error"] for line in log if line["log_level"] == "error"]


def swap(request):
    owners = keep(request)
    return [owners[1], owners[0], *owners[2:]]


@in_virtual_time
async def test_unstable_strategy_is_not_asked_to_gather():
    """C2: it moves partitions in every plan, so no plan is made at rest."""
    asked = Asked(swap)
    with structlog.testing.capture_logs() as log:
        async with scattered(asked) as (cluster, _nodes, _leading):
            await asyncio.sleep(4 * MINUTE)
            planned = len(plans_of(cluster))
            await asyncio.sleep(30 * MINUTE)
            assert planned == len(plans_of(cluster))
    assert 0 == asked.at_rest
    [line] = [line for line in log if line["log_level"] == "error"]
    assert "the placement strategy moves partitions (2) although nothing has changed" == line["error"]


def swap_at_rest(request):
    return swap(request) if request.gather_moves else keep(request)


@in_virtual_time
async def test_gathering_without_end_is_stopped():
    """C2: after four steps per node, until nodes change."""
    with structlog.testing.capture_logs() as log:
        async with scattered(swap_at_rest) as (cluster, _nodes, _leading):
            await asyncio.sleep(60 * MINUTE)
            assert 1 + 24 == len(plans_of(cluster))
    [line] = [line for line in log if line["log_level"] == "error"]
    assert ("gathering doesn't end, so it is stopped until nodes change", "tested", 24) == (
        line["event"], line["strategy"], line["steps"]
    )  # fmt: skip
