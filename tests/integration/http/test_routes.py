"""HTTP requests to a running node on real servers (X8, X7, E7, fault 19)."""

import asyncio
import re
import signal
import socket
import time

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed

from evenlane.engine.admin.why import client as why_client
from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.errors import PortUnavailable
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.ports import HOST
from evenlane.engine.runtime.engine import Engine
from evenlane.engine.telemetry import metric_names as metrics
from evenlane.ring.membership.records import OwnerRecord, decode
from tests.ledger.handlers import forgive
from tests.ledger.world import ProcessWorld
from tests.support.topics import put_specs
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
async def world(tmp_path):
    async with ProcessWorld(tmp_path, duplicate_window=2) as world:
        yield world


@pytest.fixture
async def client():
    async with aiohttp.ClientSession() as client:
        yield client


async def samples(client, base):
    async with client.get(f"{base}/metrics", headers={"accept": "application/openmetrics-text"}) as response:
        assert 200 == response.status
        return [sample for family in parsed(await response.text()) for sample in family.samples]


async def value(client, base, name, **labels):
    found = [
        each for each in await samples(client, base) if each.name == name and labels.items() <= each.labels.items()
    ]
    return found[0].value if found else None


async def get(client, url):
    async with client.get(url) as response:
        return response.status, await response.json()


async def put(world, count, project="acme", **fields):
    producer = await world.producer()
    await world.put(producer, [Put(project, b"x", **fields) for _ in range(count)])


async def test_running_node_is_explained_by_http_and_metrics(world, client):
    """X8, X7, fault 19: with one node, then with two. More requests at once than a node answers are refused."""
    await world.node(http_port=0)
    base = await world.address()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", base)
    await rejected_spec_is_an_alarm(world, client, base)
    await world.topics("acme", qps=0.01, groups=1, burst=1)
    before = time.monotonic()
    await put(world, 4)
    await metrics_describe_backlog(client, base, before)
    await world.topics("bolt", qps=0.01, groups=1, burst=1)
    await world.node(name="node-b")
    assert await world.address("node-b") is None
    await put(world, 4, project="bolt", priority="high")
    await put(world, 3, project="bolt", priority="low")
    await explanation_equals_that_of_command(world, client, base)
    await excess_requests_are_refused(client, base)


async def rejected_spec_is_an_alarm(world, client, base):
    await world.topics("other", qps=10)
    key = names.key("online", "topics", "other")
    assert 0 == await value(client, base, metrics.TOPICS_REFUSED)
    await world.etcd.put(key, b'{"qps": NaN}')
    await until(lambda: value(client, base, metrics.TOPICS_REFUSED))
    await world.etcd.put(key, b'{"qps": 20}')

    async def no_alarm():
        return await value(client, base, metrics.TOPICS_REFUSED) == 0

    await until(no_alarm)
    assert 1 == await value(client, base, metrics.TOPIC_REFUSALS, where="wish")


async def metrics_describe_backlog(client, base, before):
    """Its reason and age, when it will be gone, and the handled messages. All were put after `before`."""
    acme = {"env": "online", "project": "acme", "priority": "mid"}
    await until(lambda: value(client, base, metrics.WAITING_SECONDS, **acme, reason="quota"))
    first = await value(client, base, metrics.WAITING_SECONDS, **acme, reason="quota")

    async def waits_longer():
        return await value(client, base, metrics.WAITING_SECONDS, **acme, reason="quota") > first + 1.5

    await until(waits_longer)
    assert (3.0, 4.0, 0.0) == tuple([
        await value(client, base, name, **acme) for name in (metrics.BACKLOG, metrics.ARRIVED, metrics.IN_FLIGHT)
    ])  # fmt: skip
    assert 1.0 == await value(client, base, metrics.OUTCOMES, **acme, outcome="handled")
    assert 1 < await value(client, base, metrics.OLDEST, **acme) <= time.monotonic() - before
    assert 300.0 == pytest.approx(await until(lambda: value(client, base, metrics.TIME_TO_EMPTY, **acme)))


async def explanation_equals_that_of_command(world, client, base):
    """A node asks over its own connections, and `evenlane why` over others."""

    async def settled_down():
        status, reported = await get(client, f"{base}/api/why/bolt?within=10m")
        assert 200 == status
        waiting = [part["waiting"] for part in reported["priorities"]]
        is_settled = waiting == [3, 0, 3] and not reported["in_flight"]
        # Rates are known a while after the last partition has moved to the other node.
        return reported if is_settled and reported["forecast"]["command"] == more_quota else None

    more_quota = "evenlane topics set bolt --qps 1"
    reported = await until(settled_down)
    assert ["quota"] == [each["reason"] for each in reported["priorities"][0]["reasons"]]
    assert ["node-a", "node-b"] == [node["id"] for node in reported["nodes"]]
    command = await why_client.why(world.settings, "bolt", within=600.0)
    for same in ("project", "env", "backlog", "in_flight", "nodes", "notes"):
        assert command[same] == reported[same]
    assert more_quota == command["forecast"]["command"]
    status, reported = await get(client, f"{base}/api/why/nobody")
    assert (404, True) == (status, reported["error"].startswith("project 'nobody' has no topic"))
    status, reported = await get(client, f"{base}/api/why/bolt?priority=urgent")
    assert (400, "priority 'urgent' is not one of this cluster's: high, mid, low") == (status, reported["error"])


async def excess_requests_are_refused(client, base):
    async def some_are_refused():
        """On a busy machine, the node may answer the first ones before the last ones are sent, and refuse none."""
        answers = await asyncio.gather(*(get(client, f"{base}/api/why/bolt") for _ in range(40)))
        statuses = [status for status, _ in answers]
        assert {200, 503} >= set(statuses)
        assert 16 <= statuses.count(200)
        return 503 in statuses

    await until(some_are_refused)
    assert 200 == (await get(client, f"{base}/api/why/bolt"))[0]


async def test_node_is_ready_while_both_servers_answer(world, client):
    """Surfaces: /readyz; faults 9 and 12."""
    await world.node(http_port=0, lease_ttl=30)
    base = await world.address()
    await until(lambda: _owns_all(client, base))
    await world.servers.etcd.stop()
    await until(lambda: _has_status(client, base, 503, "etcd"))
    await world.servers.etcd.start()
    await until(lambda: _has_status(client, base, 200, ""))
    await world.servers.nats.stop()
    await until(lambda: _has_status(client, base, 503, "NATS"))
    assert (200, {"node": "node-a", "env": "online"}) == await get(client, f"{base}/healthz")
    assert 503 == (await get(client, f"{base}/api/why/acme"))[0]
    await world.servers.nats.start()
    await until(lambda: _has_status(client, base, 200, ""))


async def _owns_all(client, base):
    """The first plan may still be under way."""
    status, reported = await get(client, f"{base}/readyz")
    return (200, True, 8) == (status, reported.get("ready"), reported.get("partitions"))


async def _has_status(client, base, status, word):
    found, reported = await get(client, f"{base}/readyz")
    return found == status and word in reported.get("error", "")


async def test_node_serves_http_until_drained(world, client):
    """Fault 3: a draining node isn't ready, and SIGTERM ends it in order."""
    node = await world.node(http_port=0)
    base = await world.address()
    await world.topics("acme", ack_wait=600)
    await put(world, 1, headers={"order": "held"})
    await until(lambda: any(entry.what == "begin" for entry in world.entries()))
    node.send(signal.SIGTERM)
    await until(lambda: _has_status(client, base, 503, "draining"))
    forgive(world.folder / "ledger")
    assert 0 == await node.ended()
    with pytest.raises(aiohttp.ClientConnectionError):
        await get(client, f"{base}/healthz")


async def test_taken_port_ends_start_before_node_joins(nats_server, etcd_server, env):
    with socket.create_server((HOST, 0)) as occupant:
        port = occupant.getsockname()[1]
        settings = Settings(
            nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=1, node="late", http_port=port
        )
        with pytest.raises(PortUnavailable, match=f"^port {port} on 127.0.0.1 is in use: choose another --http-port"):
            await Engine(print, settings=settings).__aenter__()
    etcd = connections.etcd(settings)
    assert await etcd.get(names.key(env, "nodes", "late")) is None
    await etcd.close()


async def test_backlog_taken_over_never_counts_as_arrived(world, client):
    """X7, fault 1: kill -9 of the leader. No message is put or handled, so each reported rate is 0, in the survivors'
    answers and metrics; finally all rates are reported again.
    """
    names_ = ("node-a", "node-b", "node-c")
    cluster_config = await agree_cluster_config(world.etcd, "online", connections.config_known_so_far(world.settings))
    spec = '{"qps": 100000, "state": "paused", "groups": 24, "spread": 8}'
    await put_specs(world.etcd, "online", cluster_config, {"acme": spec})
    await put(world, _BACKLOG)  # before any node runs, so that no rate has to fall to 0 first
    leader, *_ = [await world.node(name=name, http_port=0) for name in names_]
    bases = [await world.address(name) for name in names_]
    await until(lambda: _all_known(client, bases, 3), 60)
    await leader.kill()

    async def has_left():  # its lease has ended
        found = await world.etcd.list(names.key("online", "owners") + "/")
        return "node-a" not in {decode(OwnerRecord, item.key, item.value).id for item in found.items}

    await until(has_left)
    reported = await until(lambda: _never_arrived(client, bases[1:], 2), 60)
    assert {"node-b", "node-c"} == {node["id"] for node in reported["nodes"]}


_BACKLOG = 4_000
_RATES = ("evenlane_arrival_rate", "evenlane_drain_rate")


async def _rates(client, base):
    return {each.value for each in await samples(client, base) if each.name in _RATES}


async def _why(client, base):
    """The explanation, and the rates in it."""
    status, reported = await get(client, f"{base}/api/why/acme")
    assert 200 == status, reported
    return reported, {reported["rates"][name] for name in ("arriving", "handled", "failed")}


async def _all_known(client, bases, nodes):
    """The explanation once the whole backlog is known and all rates are 0, else None."""
    measured = set().union(*[await _rates(client, base) for base in bases])
    reported, rates = await _why(client, bases[0])
    known = reported["backlog"] == _BACKLOG and len(reported["nodes"]) == nodes
    return reported if known and rates == measured == {0.0} else None


async def _never_arrived(client, bases, nodes):
    """The same, but fails if any rate isn't 0."""
    assert {0.0} >= set().union(*[await _rates(client, base) for base in bases])
    reported, rates = await _why(client, bases[0])
    assert rates in ({None}, {0.0}), reported
    return await _all_known(client, bases, nodes)
