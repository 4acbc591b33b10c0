"""A running node on real servers, asked by HTTP (X8, X7, E7, fault 19)."""

import asyncio
import re
import signal
import sys

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed

from evenlane.engine.admin.why import client as asking
from evenlane.engine.base import names
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.engine.telemetry import metric_names as metrics
from tests.ledger.world import ProcessWorld
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


async def asked(client, url):
    async with client.get(url) as response:
        return response.status, await response.json()


async def put(world, count, **fields):
    from evenlane.engine.producer.put import Put

    producer = await world.producer()
    await world.put(producer, [Put("acme", b"x", **fields) for _ in range(count)])


async def test_it_says_by_http_what_it_says_to_the_command(world, client):
    """X8, X7: over its own connections, and those of another node's; and its metrics say the same."""
    await world.node(http_port=0)
    base = await world.address()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", base)
    await world.topics("acme", qps=0.01, groups=1, burst=1)
    await world.node(name="node-b")
    assert await world.address("node-b") is None
    await put(world, 4, priority="high")
    await put(world, 3, priority="low")

    async def settled_down():
        status, reported = await asked(client, f"{base}/api/why/acme?within=10m")
        assert 200 == status
        waiting = [part["waiting"] for part in reported["priorities"]]
        return reported if waiting == [3, 0, 3] and not reported["in_flight"] else None

    reported = await until(settled_down, 30)
    assert ["quota"] == [each["reason"] for each in reported["priorities"][0]["reasons"]]
    assert ["node-a", "node-b"] == [node["id"] for node in reported["nodes"]]
    command = await asking.why(world.settings, "acme", within=600.0)
    for same in ("project", "env", "backlog", "in_flight", "nodes", "notes"):
        assert command[same] == reported[same]
    assert command["forecast"]["command"] == reported["forecast"]["command"]
    status, reported = await asked(client, f"{base}/api/why/nobody")
    assert (404, True) == (status, reported["error"].startswith("project 'nobody' has no topic"))
    status, reported = await asked(client, f"{base}/api/why/acme?priority=urgent")
    assert (400, "priority 'urgent' is none of this cluster's: high, mid, low") == (status, reported["error"])


async def test_metrics_of_a_backlog(world, client):
    """X8: what waits, for what and how long, when it is gone, and what was handled."""
    await world.node(http_port=0)
    base = await world.address()
    await world.topics("acme", qps=0.01, groups=1, burst=1)
    await put(world, 4)
    acme = {"env": "online", "project": "acme", "priority": "mid"}
    await until(lambda: value(client, base, metrics.WAITING_SECONDS, **acme, reason="quota"), 30)
    first = await value(client, base, metrics.WAITING_SECONDS, **acme, reason="quota")

    async def longer():
        return await value(client, base, metrics.WAITING_SECONDS, **acme, reason="quota") > first + 1.5

    await until(longer, 30)
    assert (3.0, 4.0, 0.0) == tuple([
        await value(client, base, name, **acme) for name in (metrics.BACKLOG, metrics.ARRIVED, metrics.IN_FLIGHT)
    ])  # fmt: skip
    assert 1.0 == await value(client, base, metrics.OUTCOMES, **acme, outcome="handled")
    assert 1 < await value(client, base, metrics.OLDEST, **acme) < 60
    assert 300.0 == pytest.approx(await until(lambda: value(client, base, metrics.TIME_TO_EMPTY, **acme), 30))


async def test_a_bad_wish_is_an_alarm(world, client):
    """Fault 19: while it stands; and it is counted."""
    await world.node(http_port=0)
    base = await world.address()
    await world.topics("acme", qps=10)
    key = names.key("online", "topics", "acme")
    assert 0 == await value(client, base, metrics.TOPICS_REFUSED)
    await world.etcd.put(key, b'{"qps": NaN}')
    await until(lambda: value(client, base, metrics.TOPICS_REFUSED), 30)
    await world.etcd.put(key, b'{"qps": 20}')
    await until(lambda: _is_zero(client, base), 30)
    assert 1 == await value(client, base, metrics.TOPIC_REFUSALS, where="wish")


async def _is_zero(client, base):
    return await value(client, base, metrics.TOPICS_REFUSED) == 0


async def test_ready_as_long_as_both_servers_answer(world, client):
    """Surfaces: /readyz; faults 9 and 12."""
    await world.node(http_port=0, lease_ttl=30)
    base = await world.address()
    status, reported = await asked(client, f"{base}/readyz")
    assert (200, True, 8) == (status, reported["ready"], reported["partitions"])
    await world.servers.etcd.stop()
    await until(lambda: _has_status(client, base, 503, "etcd"), 30)
    await world.servers.etcd.start()
    await until(lambda: _has_status(client, base, 200, ""), 30)
    await world.servers.nats.stop()
    await until(lambda: _has_status(client, base, 503, "NATS"), 30)
    assert (200, {"node": "node-a", "env": "online"}) == await asked(client, f"{base}/healthz")
    assert 503 == (await asked(client, f"{base}/api/why/acme"))[0]
    await world.servers.nats.start()
    await until(lambda: _has_status(client, base, 200, ""), 30)


async def _has_status(client, base, status, word):
    found, reported = await asked(client, f"{base}/readyz")
    return found == status and word in reported.get("error", "")


async def test_it_serves_until_it_has_drained(world, client):
    """Fault 3: while it ends it isn't ready, and a SIGTERM ends it in order."""
    node = await world.node(http_port=0)
    base = await world.address()
    await world.topics("acme")
    await put(world, 1, headers={"order": "sleep 3"})
    await until(lambda: any(entry.what == "begin" for entry in world.entries()))
    node.send(signal.SIGTERM)
    await until(lambda: _has_status(client, base, 503, "drains"), 10)
    assert 0 == await node.ended()
    with pytest.raises(aiohttp.ClientConnectionError):
        await asked(client, f"{base}/healthz")


async def evenlane(*arguments, **environ):
    """(exit code, stderr) of a command that ends by itself."""
    code = "from evenlane.engine.cli.main import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stderr=asyncio.subprocess.PIPE, env=environ
    )
    _, err = await process.communicate()
    return process.returncode, err.decode()


async def test_a_port_that_is_taken_ends_the_start(world):
    """One sentence, exit code 1, and nothing was joined."""
    node = await world.node(http_port=free_port())
    port = (await world.address()).rpartition(":")[2]
    code, err = await evenlane(
        "run", "--handler", "tests.ledger.handlers:obey", "--node", "late", "--http-port", port, **node._environment()
    )
    lines = [line for line in err.splitlines() if line.startswith("evenlane: ")]
    taken = f"evenlane: port {port} on 127.0.0.1 is taken: choose another --http-port, or stop what listens there"
    assert (1, [taken]) == (code, lines)
    assert await world.etcd.get(names.key("online", "nodes", "late")) is None


async def test_a_backlog_taken_over_is_never_told_as_arrived(world, client):
    """X7, fault 1: the leader's kill -9. Nothing is put any more and nothing handled, so each rate that is told is
    0, in the answers of the survivors and in their metrics; and in the end all are told again.
    """
    names_ = ("node-a", "node-b", "node-c")
    leader, *_ = [await world.node(name=name, http_port=0) for name in names_]
    await world.topics("acme", state="paused", groups=24, spread=8)
    await put(world, _BACKLOG)
    bases = [await world.address(name) for name in names_]
    await until(lambda: _all_known(client, bases, 3), 60)
    owned = len((await world.etcd.list(names.key("online", "owners") + "/")).items)
    await leader.kill()

    async def left():  # its lease has ended
        return len((await world.etcd.list(names.key("online", "owners") + "/")).items) < owned

    await until(left, 60)
    reported = await until(lambda: _never_arrived(client, bases[1:], 2), 60)
    assert {"node-b", "node-c"} == {node["id"] for node in reported["nodes"]}


_BACKLOG = 16_000  # of each partition so few that they are read by one feed
_RATES = ("evenlane_arrival_rate", "evenlane_drain_rate")


async def _rates(client, base):
    return {each.value for each in await samples(client, base) if each.name in _RATES}


async def _why(client, base):
    """What is told, and the rates in it."""
    status, reported = await asked(client, f"{base}/api/why/acme")
    assert 200 == status, reported
    return reported, {reported["rates"][name] for name in ("arriving", "handled", "failed")}


async def _all_known(client, bases, nodes):
    """What is told once all of it is, and nothing arrives any more."""
    measured = set().union(*[await _rates(client, base) for base in bases])
    reported, rates = await _why(client, bases[0])
    known = reported["backlog"] == _BACKLOG and len(reported["nodes"]) == nodes
    return reported if known and rates == measured == {0.0} else None


async def _never_arrived(client, bases, nodes):
    """The same; every rate on the way is looked at."""
    assert {0.0} >= set().union(*[await _rates(client, base) for base in bases])
    reported, rates = await _why(client, bases[0])
    assert rates in ({None}, {0.0}), reported
    return await _all_known(client, bases, nodes)


async def test_nobody_is_asked_too_much(world, client):
    """X8: more questions at once than a node answers are refused, not queued."""
    await world.node(http_port=0)
    base = await world.address()
    await world.topics("acme")
    answers = await asyncio.gather(*(asked(client, f"{base}/api/why/acme") for _ in range(40)))
    states = [status for status, _ in answers]
    assert {200, 503} == set(states)
    assert 16 <= states.count(200) < 40
    assert 200 == (await asked(client, f"{base}/api/why/acme"))[0]


async def test_the_asker_leaves_nothing_behind(world):
    """A node asks over one connection for ever: each answer's inbox is given up."""
    from evenlane.engine.cluster import connections

    await world.node()
    await world.topics("acme")
    line = connections.bus(world.settings, "test")
    await line.open()
    before = len(line._parser.raw)
    for _ in range(3):
        await asking.gather(line, "online", "acme", ["node-a"], 5.0)
    await line.close()
    with pytest.raises(EvenlaneError):
        await asking.gather(line, "online", "acme", ["node-a"], 5.0)
    assert before == len(line._parser.raw)
