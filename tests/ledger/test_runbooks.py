"""Tests of docs/how-to/runbooks.md: each runbook is carried out while its alert fires. Here: projects and messages."""

import nats
import pytest

from evenlane.engine.producer.put import Put
from evenlane.ring.hashing import partition_of
from tests.ledger.puts import one, some
from tests.ledger.runbook import Runbook
from tests.ledger.world import ProcessWorld
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.usefixtures("quiet")]


async def test_runbooks_of_projects(tmp_path):
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


async def test_runbooks_of_statuses(tmp_path):
    """X13: what to do about a project that offers too much, fails, is paused, or has no topic."""
    waits = 'evenlane_waiting_queues{{env="online",priority="mid",project="{}",reason="{}"'
    async with ProcessWorld(tmp_path, partitions=8) as world:
        await world.node(http_port=0)
        base = await world.address()
        await world.topics("acme", qps=2)
        await world.topics("bad", max_attempts=1)
        producer = await world.producer()
        await world.put(producer, [*some("acme", "m", 300), *some("bad", "m", 12, order="fail 9")])
        runbook = Runbook(world, "EvenlaneOverQuota")
        await runbook.shows(base, waits.format("acme", "quota"), lambda queues: queues == 1)
        await runbook.prints("evenlane why acme --within 1h", "acme in online")
        await runbook.prints("evenlane topics set acme --max-backlog 100000", "accepted")
        await runbook.prints("evenlane topics set acme --qps 200", "accepted")

        runbook = Runbook(world, "EvenlaneMostFail")
        await runbook.shows(base, 'evenlane_outcomes_total{env="online",outcome="dead"', lambda count: count == 12)
        await runbook.prints("evenlane dlq list acme", "bad-m-11", acme="bad")
        await runbook.prints("evenlane topics pause acme", "paused", acme="bad")
        await world.put(producer, some("bad", "fine", 100))
        runbook = Runbook(world, "EvenlanePaused")
        await runbook.shows(base, waits.format("bad", "paused"), lambda queues: queues == 1)
        await runbook.prints("evenlane topics history acme", "topics pause", acme="bad")
        assert 0 == (await runbook.run("evenlane topics resume acme", acme="bad"))[0]
        await runbook.shows(base, waits.format("bad", "paused"), lambda queues: queues <= 0)
        await Runbook(world, "EvenlaneSomeFail").prints("evenlane dlq list acme", "bad-m-11", acme="bad")

        runbook = Runbook(world, "EvenlaneNoTopic")
        client = await nats.connect(world.servers.nats.url)
        partition = partition_of("nobody", 0, 1, 8, "hashed")
        await client.jetstream().publish(f"lanes.online.{partition}.nobody.0.mid", b"whole")
        await client.close()
        await runbook.shows(base, waits.format("nobody", "paused"), lambda queues: queues == 1)
        assert -1 == await runbook.metric(base, 'evenlane_quota_rate{env="online",project="nobody"')
        await runbook.prints("evenlane topics set acme --qps 100", "accepted", acme="nobody")
        await runbook.shows(base, waits.format("nobody", "paused"), lambda queues: queues <= 0)


async def test_runbooks_of_busy_slots_and_hung_handlers(tmp_path):
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


async def test_runbook_of_a_full_payload_budget(tmp_path):
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


async def test_runbook_of_stuck_copies(tmp_path):
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


async def test_runbooks_of_missing_and_stray_messages(tmp_path):
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
        client = await nats.connect(world.servers.nats.url)
        await client.jetstream().publish("lanes.online.3.acme.0.urgent", b"whole")
        await client.close()
        await runbook.shows(base, "evenlane_stray_messages_total", lambda count: count == 1)
        await runbook.prints("evenlane dlq list _stray", "1")
        await runbook.prints("evenlane dlq show _stray 17", "lanes.online.3.acme.0.urgent", **{"17": 1})
        assert 0 == (await runbook.run("evenlane dlq drop _stray --all --yes"))[0]
