"""The runbooks, tried: each is carried out while what its alert tells of is so (docs/how-to/runbooks.md)."""

import asyncio
import os
import shutil
import signal

import pytest

from evenlane.engine.base.log_setup import setup
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.ports import free_port
from tests.ledger.puts import one, some
from tests.ledger.runbook import Runbook
from tests.ledger.world import ProcessWorld
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _quiet():
    """The transcript is what the commands and the nodes say."""
    setup("console", "error")


async def test_projects(tmp_path):
    async with ProcessWorld(tmp_path) as world:
        await world.node(http_port=0)
        base = await world.address()
        await world.topics("acme", "hog", qps=2)
        await world.topics("bad", max_attempts=1)
        producer = await world.producer()
        await world.put(producer, [*some("acme", "m", 300), *some("bad", "m", 12, order="fail 9")])

        runbook = Runbook(world, "EvenlaneBacklogOld")
        await runbook.prints("evenlane why acme", "quota")
        await runbook.prints("evenlane why acme --within 10m", "QPS")
        await runbook.prints("evenlane topics set acme --reserve 20", "accepted")
        await runbook.prints("evenlane topics set acme --ageing 0.1", "accepted")
        await runbook.prints("evenlane topics set acme --qps 200", "accepted")
        runbook = Runbook(world, "EvenlaneBacklogWontEmpty")
        await runbook.prints("evenlane why acme --within 1h", "acme in online")
        await runbook.prints("evenlane topics set acme --max-backlog 100000", "accepted")
        runbook = Runbook(world, "EvenlaneTenantStarved")
        await runbook.prints("evenlane topics set hog --concurrency 20", "accepted")
        await runbook.prints("evenlane topics set acme --reserve 20", "accepted")
        runbook = Runbook(world, "EvenlaneMessagesExpire")
        await runbook.prints("evenlane topics set acme --ttl 1d", "accepted")
        await runbook.prints("evenlane topics set acme --dead-letter-expired", "accepted")
        await Runbook(world, "EvenlaneSharesOneLabel").prints("evenlane config", "metrics_projects")

        runbook = Runbook(world, "EvenlaneDeadLettersRising")
        await runbook.shows(base, 'evenlane_outcomes_total{env="online",outcome="dead"', lambda count: count == 12)
        await runbook.prints("evenlane dlq list acme", "bad-m-11", acme="bad")
        await runbook.prints("evenlane dlq show acme 17", "attempt 1 fails as ordered", **{"acme 17": "bad 1"})
        await runbook.prints("evenlane topics pause acme", "paused", acme="bad")
        await runbook.prints("evenlane dlq replay acme --all", "replayed 12", acme="bad")

        runbook = Runbook(world, "EvenlaneQuotaRejected")
        await world.etcd.put("/evenlane/online/topics/acme", b'{"qps": -1}')
        await runbook.shows(base, "evenlane_topics_refused", lambda count: count == 1)
        await runbook.prints("evenlane topics list", "acme", "refused")
        await runbook.prints("evenlane topics get acme", "qps must be a number")
        await runbook.prints("evenlane topics history acme", "topics set")
        await runbook.prints("evenlane topics set acme --qps 100", "accepted")
        await runbook.shows(base, "evenlane_topics_refused", lambda count: count == 0)


async def test_nodes_that_die(tmp_path):
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
        await runbook.prints("evenlane plan", "no node runs")
        code, _ = await runbook.run("curl http://127.0.0.1:8080/healthz", **{"http://127.0.0.1:8080": base})
        assert code == 7, "nobody listens"
        node = await world.node(name="node-b", http_port=0)
        await runbook.prints("evenlane plan", "node-b  8        8 ")
        base = await world.address("node-b")
        assert 0 == (await runbook.run("curl http://127.0.0.1:8080/healthz", **{"http://127.0.0.1:8080": base}))[0]
        assert node.running


async def test_partitions_that_nobody_can_open(tmp_path):
    """NATS is away, so the one that is left stays behind with what it gets."""
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


async def test_etcd_goes(tmp_path):
    async with ProcessWorld(tmp_path, lease_ttl=3) as world:
        await world.node(http_port=0)
        base = await world.address()
        runbook = Runbook(world, "EvenlaneLeaseTrouble")
        assert 0 == (await runbook.run("etcdctl endpoint status"))[0]
        await world.servers.etcd.kill()
        await runbook.shows(base, "evenlane_lease_left_seconds", lambda left: left < 0.75)
        assert 1 == (await runbook.run("etcdctl endpoint health"))[0]
        await runbook.is_ready(base, 503)
        runbook = Runbook(world, "EvenlaneNoLeader")
        await runbook.shows(base, "evenlane_leader", lambda leads: leads == 0)
        await runbook.prints("evenlane plan", "does not answer", code=1)
        await world.servers.etcd.start()
        await runbook.prints("evenlane plan", "led by node-a", "node-a  8        8 ")
        await runbook.shows(base, "evenlane_leader", lambda leads: leads == 1)


async def test_topics_that_etcd_has_lost(tmp_path):
    """F2: one is brought back; the other, which was deleted and still had a message, is made to be deleted again."""
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
        await runbook.is_ready(base, 200)
        await runbook.prints("evenlane why acme", "etcd has lost the project's topic, which stays in force on node-a")
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


async def test_two_nodes_of_one_id(tmp_path):
    async with ProcessWorld(tmp_path, lease_ttl=3) as world:
        await world.node(http_port=0)
        port = free_port()
        twin = world.twin(log="twin", http_port=port)
        await twin.spawn()
        runbook = Runbook(world, "EvenlaneNodeWithoutLease")
        await until(
            lambda: runbook.logged("twin", "the node's id is still registered: waiting for its lease to end"), 20
        )
        await runbook.is_ready(f"http://127.0.0.1:{port}", 503)
        assert 1 == await twin.ended()
        assert runbook.logged("twin", "a node 'node-a' runs already: give this one another --node")


async def test_a_node_that_was_stopped(tmp_path):
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


async def test_nats_goes(tmp_path):
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
        await runbook.is_ready(base, 503)
        await world.servers.nats.start()
        await runbook.shows(base, 'evenlane_connected{env="online",server="nats"', lambda up: up == 1)
        await runbook.is_ready(base, 200)
        assert runbook.logged("node-a", "NATS is back")


async def test_a_loop_that_is_blocked(tmp_path):
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
        assert code == 28, "its HTTP is in the loop that is blocked"
        assert 70 == await asyncio.wait_for(node.ended(), 90)
        assert runbook.logged("node-a", "the event loop stays blocked: the process ends")
        assert 0 == (await runbook.run("evenlane backlog cancel acme ID", ID="acme-stuck"))[0]
        await world.node(http_port=0)
        await runbook.shows(
            await world.address(), "evenlane_ended_blocked_seconds_total", lambda seconds: seconds >= 45
        )


async def test_slots_that_are_all_busy_and_handlers_that_hang(tmp_path):
    async with ProcessWorld(tmp_path, partitions=8) as world:
        await world.node(http_port=0, concurrency=4)
        await world.topics("hog")
        await world.topics("acme", ack_wait=0.5, max_attempts=2, backoff={"base": 60})
        base = await world.address()
        producer = await world.producer()
        await world.put(producer, some("hog", "m", 200, order="alive 1"))
        runbook = Runbook(world, "EvenlaneSaturated")
        await runbook.shows(base, "evenlane_slots_busy", lambda busy: busy == 4)
        assert 0 == (await runbook.run("evenlane topics set hog --concurrency 20", **{"20": 1}))[0]
        await runbook.shows(base, "evenlane_slots_busy", lambda busy: busy < 4)

        runbook = Runbook(world, "EvenlaneHandlersHang")
        await world.put(producer, some("acme", "m", 10, order="hang"))
        await runbook.shows(base, 'evenlane_duplicates_total{cause="hung"', lambda count: count > 5)
        assert runbook.logged("node-a", "acme-m-")
        assert 0 == (await runbook.run("evenlane topics set acme --ack-wait 1m"))[0]


async def test_payloads_without_room(tmp_path):
    async with ProcessWorld(tmp_path, partitions=8) as world:
        await world.node(http_port=0, payload_budget=4 << 20, concurrency=2)
        await world.topics(*(f"p{n}" for n in range(20)), "acme", qps=0.02)
        base = await world.address()
        producer = await world.producer()
        body = b"x" * 500_000
        puts = [Put(f"p{n % 20}", body, id=f"m{n}") for n in range(60)]
        await world.put(producer, [*puts, *(Put("acme", body, id=f"acme{n}") for n in range(3))])
        runbook = Runbook(world, "EvenlanePayloadFull")
        budget = await runbook.metric(base, "evenlane_payload_budget_bytes")
        await runbook.shows(base, "evenlane_payload_bytes", lambda held: held > 0.7 * budget, 20)
        await runbook.prints("evenlane backlog peek acme", "mid: 3 waiting")


async def test_copies_that_find_no_room(tmp_path):
    async with ProcessWorld(tmp_path, partitions=8) as world:
        await world.node(http_port=0)
        await world.topics("acme", max_attempts=1)
        base = await world.address()
        producer = await world.producer()
        await world.put(producer, [one("acme", "first", order="fail 9")])
        dead = await world.dead_letters()

        async def one_dead_letter() -> bool:
            return len(await dead.ids()) == 1

        await until(one_dead_letter, 20)
        config = (await world.api("STREAM.INFO.DEAD_online"))["config"]
        await world.api("STREAM.UPDATE.DEAD_online", config | {"max_msgs": 1, "discard": "new"})
        await world.put(producer, some("acme", "m", 100, order="fail 9"))
        runbook = Runbook(world, "EvenlaneCopiesStuck")
        await runbook.shows(base, "evenlane_pending_copies", lambda pending: pending >= 64)
        assert runbook.logged("node-a", "a copy can't be put: its message stays where it is")
        await runbook.prints(
            "evenlane why acme", "100 of its failed messages stay: their retries or dead letters can't be stored ("
        )
        await world.put(producer, some("acme", "behind", 10))
        await runbook.prints("evenlane why acme", "10 wait", "paused")
        await runbook.prints("evenlane dlq keep 7d", "stream DEAD_online has max_msgs 1", code=2)
        await world.api("STREAM.UPDATE.DEAD_online", config)
        assert 0 == (await runbook.run("evenlane dlq keep 7d"))[0]
        await runbook.shows(base, "evenlane_pending_copies", lambda pending: pending == 0, 90)


async def test_messages_that_are_missing_and_strays(tmp_path):
    async with ProcessWorld(tmp_path, partitions=8) as world:
        await world.node(http_port=0)
        await world.topics("acme", state="paused")
        base = await world.address()
        producer = await world.producer()
        await world.put(producer, some("acme", "m", 10))
        runbook = Runbook(world, "EvenlaneMessagesMissing")
        stream, sequence = world.acknowledged["acme-m-3"]
        await world.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
        assert 0 == (await runbook.run("evenlane backlog cancel acme ID", ID="acme-m-4"))[0]
        for gone in ("acme-m-3", "acme-m-4"):
            del world.acknowledged[gone]
        await world.topics("acme")
        await world.handled()
        await runbook.shows(base, "evenlane_missing_sequences_total", lambda count: count == 1)
        assert runbook.logged("node-a", "a message that was indexed is gone from its stream")

        runbook = Runbook(world, "EvenlaneStrayMessages")
        import nats

        client = await nats.connect(world.servers.nats.url)
        await client.jetstream().publish("lanes.online.3.acme.0.urgent", b"whole")
        await client.close()
        await runbook.shows(base, "evenlane_stray_messages_total", lambda count: count == 1)
        await runbook.prints("evenlane dlq list _stray", "1")
        await runbook.prints("evenlane dlq show _stray 17", "lanes.online.3.acme.0.urgent", **{"17": 1})
        assert 0 == (await runbook.run("evenlane dlq drop _stray --all"))[0]
