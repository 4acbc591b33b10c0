"""Tests of docs/how-to/runbooks.md: each runbook is carried out while its alert fires. Here: nodes and servers."""

import asyncio
import os
import shutil
import signal

import pytest

from evenlane.engine.runtime.embedded.ports import free_port
from tests.ledger.puts import one, some
from tests.ledger.runbook import Runbook
from tests.ledger.world import ProcessWorld
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.usefixtures("quiet")]


async def test_runbooks_of_dead_nodes(tmp_path):
    async with ProcessWorld(tmp_path, lease_ttl=8) as world:
        await world.node(http_port=0)
        await world.node(name="node-b", http_port=0)
        base = await world.address("node-b")
        runbook = Runbook(world, "EvenlaneNodeDown")
        await runbook.prints("evenlane plan", "node-a", "node-b")
        await world.nodes[1].kill()
        await runbook.prints("evenlane plan", "node-b")
        await runbook.prints("evenlane plan", "1 node,", "node-a  8        8 ")
        await world.nodes[0].kill()
        runbook = Runbook(world, "EvenlaneNoNode")
        await runbook.prints("evenlane plan", "no node is running")
        code, _ = await runbook.run("curl http://127.0.0.1:8080/healthz", **{"http://127.0.0.1:8080": base})
        assert code == 7, "no process listens"
        node = await world.node(name="node-b", http_port=0)
        await runbook.prints("evenlane plan", "node-b  8        8 ")
        base = await world.address("node-b")
        assert 0 == (await runbook.run("curl http://127.0.0.1:8080/healthz", **{"http://127.0.0.1:8080": base}))[0]
        assert node.running


async def test_runbook_of_unowned_partitions(tmp_path):
    """NATS is away, so the remaining node can't open the partitions that it gets."""
    async with ProcessWorld(tmp_path, lease_ttl=3) as world:
        await world.node(http_port=0)
        await world.node(name="node-b", http_port=0)
        runbook = Runbook(world, "EvenlanePartitionUnowned")
        await runbook.prints("evenlane plan", "node-a  4        4 ", "node-b  4        4 ")
        await world.servers.nats.kill()
        await world.nodes[1].kill()
        await runbook.prints("evenlane plan", "1 node, generation 3", "node-a  8        8     0    0       2 ")
        await world.servers.nats.start()
        await runbook.prints("evenlane plan", "node-a  8        8     0    0       3 ")


async def test_runbooks_of_an_etcd_outage(tmp_path):
    async with ProcessWorld(tmp_path, lease_ttl=3) as world:
        await world.node(http_port=0)
        base = await world.address()
        runbook = Runbook(world, "EvenlaneLeaseTrouble")
        assert 0 == (await runbook.run("etcdctl endpoint status"))[0]
        await world.servers.etcd.kill()
        await runbook.shows(base, "evenlane_lease_left_seconds", lambda left: left < 0.75)
        assert 1 == (await runbook.run("etcdctl endpoint health"))[0]
        await runbook.wait_for_readyz(base, 503)
        runbook = Runbook(world, "EvenlaneNoLeader")
        await runbook.shows(base, "evenlane_leader", lambda leads: leads == 0)
        await runbook.prints("evenlane plan", "does not answer", code=1)
        await world.servers.etcd.start()
        await runbook.prints("evenlane plan", "led by node-a", "node-a  8        8 ")
        await runbook.shows(base, "evenlane_leader", lambda leads: leads == 1)


async def test_runbook_of_lost_topics(tmp_path):
    """F2: one topic is restored. The other was deleted and still had a message; it is made again, to delete it."""
    async with ProcessWorld(tmp_path, lease_ttl=3) as world:
        await world.node(http_port=0)
        await world.topics("acme")
        await world.topics("old", state="paused")
        base = await world.address()
        runbook = Runbook(world, "EvenlaneTopicsLost")
        await world.put(await world.producer(), [one("old", "waits")])
        await runbook.prints("evenlane topics delete acme", "deleted", acme="old")
        file = tmp_path / "topics.json"
        await runbook.prints(
            "evenlane topics export", "it is deleted and not in the file", export=f"export --file {file}"
        )
        etcd = world.servers.etcd
        await etcd.kill()
        await asyncio.to_thread(shutil.rmtree, etcd.data_dir / etcd.kind)
        await etcd.start()
        await runbook.shows(base, 'evenlane_node_trouble{env="online",kind="topics"', lambda lost: lost == 1)
        await runbook.wait_for_readyz(base, 200)
        await runbook.prints("evenlane why acme", "etcd has lost the project's topic, which stays in effect on node-a")
        await runbook.prints("evenlane why acme", "misses 2 topics in etcd, which had them (acme, old)", acme="other")
        assert runbook.logged("node-a", "etcd has lost topics")
        assert "acme" not in await runbook.prints("evenlane topics list", "PROJECT")
        await runbook.prints("evenlane topics delete acme", "has no topic", code=1, acme="old")
        await runbook.prints("evenlane topics apply FILE", "accepted 1", FILE=f"{file} --yes")
        await runbook.prints("evenlane why acme", "misses 1 topic in etcd, which had it (old)")
        await runbook.prints("evenlane topics set acme --qps 1 --state paused", "accepted", acme="old")
        await runbook.shows(base, 'evenlane_node_trouble{env="online",kind="topics"', lambda lost: lost == 0)
        await runbook.prints("evenlane topics delete acme", "deleted", acme="old")
        assert [] == world.entries(), "paused all the time"


async def test_runbook_of_two_nodes_with_one_id(tmp_path):
    async with ProcessWorld(tmp_path, lease_ttl=3) as world:
        await world.node(http_port=0)
        port = free_port()
        twin = world.twin(log="twin", http_port=port)
        await twin.spawn()
        runbook = Runbook(world, "EvenlaneNodeWithoutLease")
        await until(
            lambda: runbook.logged("twin", "the node's id is still registered: waiting for its lease to end"), 20
        )
        await runbook.wait_for_readyz(f"http://127.0.0.1:{port}", 503)
        assert 1 == await twin.ended()
        assert runbook.logged("twin", "a node 'node-a' is already running: give this one another --node")


async def test_runbook_of_lost_partitions(tmp_path):
    async with ProcessWorld(tmp_path, lease_ttl=3) as world:
        node = await world.node(http_port=0)
        base = await world.address()
        runbook = Runbook(world, "EvenlanePartitionsLost")
        node.send(signal.SIGSTOP)
        await until(lambda: has_no_owners(world), 20)
        node.send(signal.SIGCONT)
        await runbook.shows(base, 'evenlane_partition_moves_total{env="online",how="lost"', lambda count: count == 8)
        assert 8 == node.logged(" lost  ")
        assert runbook.logged("node-a", " lost  ")
        await until(lambda: node.logged("owned  ") == 16, 20)


async def has_no_owners(world):
    return not (await world.etcd.list("/evenlane/online/owners/")).items


async def test_runbooks_of_a_nats_outage(tmp_path):
    async with ProcessWorld(tmp_path) as world:
        await world.node(http_port=0)
        await world.topics("acme")
        base = await world.address()
        producer = await world.producer()
        await world.put(producer, some("acme", "m", 50, order="sleep 0.5"))
        runbook = Runbook(world, "EvenlaneSettleLag")
        os.kill(world.servers.nats.pid, signal.SIGSTOP)
        try:
            await runbook.shows(base, "evenlane_settle_lag_seconds", lambda lag: lag > 1)
            await until(lambda: runbook.logged("node-a", "settles lag: nothing new is started"))
        finally:
            os.kill(world.servers.nats.pid, signal.SIGCONT)
        await runbook.shows(base, "evenlane_settle_lag_seconds", lambda lag: lag < 1)
        await world.handled()
        assert runbook.logged("node-a", "settles are durable again")

        runbook = Runbook(world, "EvenlaneNatsDisconnected")
        await world.servers.nats.kill()
        await runbook.shows(base, 'evenlane_connected{env="online",server="nats"', lambda up: up == 0)
        await runbook.wait_for_readyz(base, 503)
        await world.servers.nats.start()
        await runbook.shows(base, 'evenlane_connected{env="online",server="nats"', lambda up: up == 1)
        await runbook.wait_for_readyz(base, 200)
        assert runbook.logged("node-a", "NATS is back")


async def test_runbooks_of_a_blocked_loop(tmp_path):
    async with ProcessWorld(tmp_path, block_limit=45) as world:
        node = await world.node(http_port=0, concurrency=4)
        await world.topics("acme")
        base = await world.address()
        producer = await world.producer()
        runbook = Runbook(world, "EvenlaneLoopBlocked")
        await world.put(producer, [one("acme", "slow", order="block 4")])
        await runbook.shows(base, "evenlane_loop_blocked_seconds_total", lambda seconds: seconds > 3)
        assert runbook.logged("node-a", "the event loop is blocked", "acme-slow")

        await world.put(producer, [one("acme", "stuck", order="block 100")])
        await runbook.prints("evenlane why acme", "has been blocked for", "tests/ledger/handlers.py:", code=1)
        await runbook.prints(
            "evenlane top", "from the only node", "node-a has been blocked", "a message of acme", code=1
        )
        trouble = Runbook(world, "EvenlaneNodeTrouble")
        await trouble.prints("evenlane why acme", "has been blocked for", code=1)
        code, _ = await trouble.run("curl http://HOST:PORT/readyz", **{"http://HOST:PORT": base})
        assert code == 28, "HTTP runs in the blocked loop"
        assert 70 == await asyncio.wait_for(node.ended(), 90)
        assert runbook.logged("node-a", "the event loop stays blocked: the process ends")
        assert 0 == (await runbook.run("evenlane backlog cancel acme ID", ID="acme-stuck"))[0]
        await world.node(http_port=0)
        await runbook.shows(
            await world.address(), "evenlane_ended_blocked_seconds_total", lambda seconds: seconds >= 45
        )
