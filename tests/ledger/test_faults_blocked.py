"""Tests of handlers that block their node's event loop (F1)."""

from collections import Counter

import pytest

from evenlane.engine.admin.why.client import why
from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.loop_watch.node_loop import BLOCKED
from evenlane.ring.membership.records import NodeRecord, decode
from tests.ledger import settle_logs
from tests.ledger.cluster import TTL_S, ProcessCluster
from tests.ledger.process import NodeProcess
from tests.ledger.promises import begun_again, never_handled, partition, pause
from tests.ledger.puts import one, some
from tests.ledger.supervised import Supervised
from tests.support.until import until

pytestmark = pytest.mark.real


async def troubles(cluster: ProcessCluster) -> dict[str, dict[str, str]]:
    """The troubles in each node's record in etcd."""
    found = await cluster.etcd.list(names.key("online", "nodes", ""))
    return {item.key.rpartition("/")[2]: decode(NodeRecord, item.key, item.value).troubles for item in found.items}


def warnings_of(node: NodeProcess, project: str) -> list[str]:
    """The warnings about blocking messages of the project. Each names handler, file and line, and message."""
    lines = [line for line in node.log.read_text().splitlines() if "the event loop is blocked" in line]
    its = [line for line in lines if f"project={project}" in line]
    for line in its:
        for part in ("at=tests/ledger/handlers.py:", "handler=tests.ledger.handlers:obey ", f"id={project}-"):
            assert part in line, line
    assert len(its) <= node.logged("time.sleep(argument)"), "a stack is missing"
    return its


@pytest.mark.parametrize(
    ("blocked_s", "count"), [(3 * TTL_S, 1), pytest.param(15, 1, marks=pytest.mark.full),
                             pytest.param(3 * TTL_S, 30, marks=pytest.mark.full)],
)  # fmt: skip
async def test_blocked_node_keeps_its_partitions_and_delays_no_other_node(tmp_path, blocked_s, count):
    """F1, Z1, L, D: a node that is blocked for longer than its lease remains the owner. The blocking message begins
    once; the node's others wait no longer than the block, partitions of other nodes not at all. Log, etcd and `why`
    name the line.
    """
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await cluster.start("node-0", "node-1", "node-2")
        await cluster.topics(*cluster.projects, "blocker")
        await cluster.owned_by(*nodes)
        async with cluster.load() as load:
            await load.reaches_all()
            start = now_ns()
            producer = await cluster.producer()
            blockers = some("blocker", "b", count, order=f"block {blocked_s}")
            await cluster.put(producer, blockers)

            async def reported() -> bool:
                return any("blocked" in its for its in (await troubles(cluster)).values())

            await until(reported, 30, "the blocked node to be named in etcd")
            (name,) = [each for each, its in (await troubles(cluster)).items() if its]
            document = await why(cluster.settings, cluster.projects[0])
            await cluster.handled(*(put.id for put in blockers), timeout=60 + count * blocked_s)
            freed = now_ns()
            await load.reaches_all()
        entries = cluster.entries()
        reports = [note for note in document["notes"] if "has been blocked for" in note]
        assert [True] == [f"node {name}" in note and "tests/ledger/handlers.py:" in note for note in reports]
        assert count == len(warnings_of(cluster.newest(name), "blocker"))
        assert all(node.running for node in nodes)

        async def over() -> bool:
            return not (await troubles(cluster))[name]

        await until(over, 30, "the trouble to end in etcd")
        begun = [entry.id for entry in entries if entry.what == "begin" and entry.project == "blocker"]
        assert dict.fromkeys((put.id for put in blockers), 1) == Counter(begun)
        assert [] == begun_again(entries)
        assert set() == never_handled(cluster.acknowledged, entries)
        assert set() == await (await cluster.dead_letters()).ids()
        logs = await settle_logs.read(cluster.settings, cluster.partitions)
        stored = [cluster.acknowledged[put.id] for put in blockers]
        assert all(sequence in logs[stream].settled() for stream, sequence in stored)
        pid = cluster.newest(name).pid
        its = {partition(entry) for entry in entries if entry.pid == pid}
        others = set(range(cluster.partitions)) - its
        assert others
        assert max(pause(entries, number, start, freed) for number in others) < blocked_s / 2
        assert max(pause(entries, number, start, freed) for number in its) < 1.5 * blocked_s


async def test_message_that_blocks_for_ever_is_dead_lettered_after_n_attempts(tmp_path):
    """F1, X11: each process ends by itself, with an exit code of its own, and counts an attempt of the blocking
    message. Nothing else is lost or counted.
    """
    limit_s = 2
    async with ProcessCluster(tmp_path) as cluster:
        nodes = [Supervised(cluster, f"node-{number}", block_limit=limit_s) for number in range(2)]
        async with nodes[0], nodes[1]:
            await cluster.topics(*cluster.projects, "blocker", max_attempts=2)
            async with cluster.load() as load:
                await load.reaches_all()
                dead = await cluster.dead_letters()
                await cluster.put(await cluster.producer(), [one("blocker", "b", order="block 600")])
                del cluster.acknowledged["blocker-b"]  # no handler will ever end it

                async def is_dead() -> bool:
                    return "blocker-b" in await dead.ids()

                await until(is_dead, 60, "the dead letter")
                await load.reaches_all()
            (dead_letter,) = await dead.read()
            assert (f"blocked its node for {limit_s} s in attempt 2", 2) == (dead_letter.reason, dead_letter.attempts)
            assert [BLOCKED] * 2 == [end.status for node in nodes for end in node.ends]
            last = f"ended its process, blocked for {limit_s} s by tests/ledger/handlers.py:"
            for node in nodes:
                reports = [each["troubles"].get("blocked", "") for each in cluster.history.values(f"nodes/{node.name}")]
                assert bool(node.ends) == any(each.startswith(last) for each in reports), reports
            entries = cluster.entries()
            assert 2 == len([entry for entry in entries if entry.id == "blocker-b" and entry.what == "begin"])
            assert set() == never_handled(cluster.acknowledged, entries)
        logs = "".join((tmp_path / f"node-{number}.log").read_text() for number in range(2))
        assert 2 == logs.count("the event loop stays blocked: the process ends")


@pytest.mark.full
async def test_fallback_that_blocks_for_ever_runs_once(tmp_path):
    """F1, K4: the first end of a process counts, since it names the message, which then gets no fallback."""
    limit_s = 2
    async with ProcessCluster(tmp_path) as cluster:
        nodes = [Supervised(cluster, f"node-{number}", block_limit=limit_s, fallback="give_up") for number in range(2)]
        async with nodes[0], nodes[1]:
            await cluster.topics("blocker", max_attempts=1)
            dead = await cluster.dead_letters()
            bad = Put("blocker", b"", id="blocker-b", headers={"order": "fail 9", "fallback": "block"})
            await cluster.put(await cluster.producer(), [bad])

            async def is_dead() -> bool:
                return "blocker-b" in await dead.ids()

            await until(is_dead, 60, "the dead letter")
            (dead_letter,) = await dead.read()
            assert f"blocked its node for {limit_s} s in attempt 1" == dead_letter.reason
            assert [BLOCKED] == [end.status for node in nodes for end in node.ends]
