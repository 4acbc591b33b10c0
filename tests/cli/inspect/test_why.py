"""X8, X7: `evenlane why` on real servers and a real node."""

import asyncio
import json
import re
import signal

import msgspec
import pytest

from evenlane.engine.admin.why import client
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.records.backlog_answer import NodeAnswer, Rates
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
def idle(servers, evenlane, monkeypatch):
    """An environment with a topic and without nodes."""
    for key, value in {"NATS": servers.nats.url, "ETCD": servers.etcd.endpoint, "ENV": "idle"}.items():
        monkeypatch.setenv(f"EVENLANE_{key}", value)
    assert 0 == evenlane("topics", "set", "acme", "--qps", "100")[0]


WRONG = r"""
why acme
why acme --json
why nobody
why acme --priority urgent
why acme --priority a.b
why a.b
why '*'
why
why acme --within soon
why acme --within 0
why acme --within -5s
why acme --etcd 127.0.0.1:1
"""


@pytest.mark.usefixtures("idle")
def test_error_is_one_sentence_with_its_exit_code(transcript):
    transcript.fail(WRONG)
    transcript.check()


async def put(world, count, **fields):
    from evenlane.engine.producer.put import Put

    producer = await world.producer()
    await world.put(producer, [Put("acme", b"x", **fields) for _ in range(count)])


async def test_running_node_says_why(world, evenlane_in_thread):
    """X8, X7: quota, higher priority and not due, forecast and the quota that would help; then the node is silent."""
    node = await world.node(lease_ttl=60)  # it keeps its partitions while it is stopped below
    await world.topics("acme", qps=0.01, groups=1, burst=1)
    await put(world, 6, priority="high")
    await put(world, 5, priority="low")
    await put(world, 2, priority="mid", delay=240)  # fed from any hour: see HourFeeds

    async def settled_down():
        code, out, err = await evenlane_in_thread("why", "acme", "--json", "--within", "10s")
        assert (0, "") == (code, err)
        reported = json.loads(out)
        waiting = [part["waiting"] for part in reported["priorities"]]
        delayed = [part["delayed"] for part in reported["priorities"]]
        settled = waiting == [5, 0, 5] and delayed == [0, 2, 0] and not reported["in_flight"]
        return reported if settled and reported["rates"]["arriving"] is not None else None

    reported = await until(settled_down)
    high, mid, low = reported["priorities"]
    assert [("quota", 1, 5)] == [(each["reason"], each["groups"], each["messages"]) for each in high["reasons"]]
    assert "the topic's 0.01 msg/s are used up" == high["reasons"][0]["sentence"]
    assert [("higher_priority", 1)] == [(each["reason"], each["groups"]) for each in low["reasons"]]
    assert [("not_due", 1, 2)] == [(each["reason"], each["groups"], each["messages"]) for each in mid["reasons"]]
    assert ("acme", world.settings.env, 10) == (reported["project"], reported["env"], reported["backlog"])
    assert 0 < reported["oldest_seconds"] == max(high["oldest_seconds"], low["oldest_seconds"])
    assert [{"id": "node-a", "answered": True, "waiting": 10}] == reported["nodes"]
    assert (0.01, []) == (reported["rates"]["quota"], reported["notes"])
    assert reported["forecast"]["command"].startswith("evenlane topics set acme --qps ")
    assert set(reported["forecast"]) == {
        "gone_in_seconds", "sentence", "within_seconds", "qps_to_clear_within", "within_sentence", "command"
    }  # fmt: skip
    await _as_text(world, evenlane_in_thread)
    node.send(signal.SIGSTOP)
    code, out, err = await evenlane_in_thread("why", "acme")
    node.send(signal.SIGCONT)
    assert (1, "") == (code, out)
    assert err.startswith("evenlane: no answer came within 3 s from node-a")


async def _as_text(world, evenlane_in_thread):
    code, out, err = await evenlane_in_thread("why", "acme", "--priority", "high")
    assert (0, "") == (code, err)
    lines = out.splitlines()
    assert lines[0].startswith(f"acme in {world.settings.env}: 10 wait, the oldest for ")
    assert ["high", "5"] == next(line for line in lines if "high" in line).split()[:2]
    assert "quota: the topic's 0.01 msg/s are used up" in lines
    assert not any("low" in line for line in lines)
    assert 1 == sum(line.startswith("forecast: ") for line in lines)
    assert any(re.fullmatch(r"waited: in the last \S+, high waited for quota .+", line) for line in lines)
    code, out, err = await evenlane_in_thread("why", "acme", "--nats", "nats://127.0.0.1:1")
    assert (1, "") == (code, out)
    assert err.startswith("evenlane: NATS at nats://127.0.0.1:1 does not answer")


async def test_nodes_answer_for_their_own_partitions(world, evenlane_in_thread):
    """X8: a paused topic over two nodes."""
    await world.node()
    await world.topics("acme", state="paused")
    await world.node(name="node-b")
    await put(world, 7)

    async def all_wait():
        code, out, err = await evenlane_in_thread("why", "acme", "--json")
        assert (0, "") == (code, err)
        reported = json.loads(out)
        return reported if reported["backlog"] == 7 and reported["rates"]["arriving"] is not None else None

    reported = await until(all_wait)
    assert ["node-a", "node-b"] == [node["id"] for node in reported["nodes"]]
    assert ["paused"] == [each["reason"] for each in reported["priorities"][1]["reasons"]]
    assert reported["priorities"][1]["oldest_seconds"] > 0
    assert (None, "never, as long as it is paused") == (
        reported["forecast"]["gone_in_seconds"], reported["forecast"]["sentence"],
    )  # fmt: skip
    assert 0.0 == reported["forecast"]["resumed_gone_in_seconds"]  # 7 at 100,000 QPS
    code, out, _ = await evenlane_in_thread("why", "acme")
    assert (0, 1) == (code, out.count("\n          once it is resumed, gone in "))


# ---- gathering


@pytest.fixture
async def connection(servers):
    one = Connection(NatsOptions((servers.nats.url,)), "asker")
    await one.open()
    yield one
    await one.close()


async def _answering(servers, *bodies):
    """A client that answers each question with these bodies."""
    other = Connection(NatsOptions((servers.nats.url,)), "answers")
    await other.open()
    other.listen("ask.x.why.*", lambda _s, reply, _h, _b: [other.send(reply.decode(), body) for body in bodies])
    await other.request("$SYS.REQ.USER.INFO", b"")  # the server has the subscription now
    return other


def _answer(node):
    return msgspec.json.encode(NodeAnswer(node, rates=Rates(seconds=1.0)))


async def test_answers_of_all_owners_are_gathered(servers, connection):
    """X8: junk is skipped, and so is a node that owns nothing any more."""
    other = await _answering(servers, b"junk", b"", b'{"node": 1}', _answer("c"), _answer("b"), _answer("a"))
    answers = await client.gather(connection, "x", "acme", ["a", "b"], 30.0)
    assert ["a", "b"] == [answer.node for answer in answers]
    await other.close()


async def test_silent_owner_is_left_out_after_the_timeout(servers, connection):
    other = await _answering(servers, _answer("a"))
    answers = await client.gather(connection, "x", "acme", ["a", "b"], 3.0)
    assert ["a"] == [answer.node for answer in answers]
    await other.close()


async def test_gathering_without_listeners_returns_at_once(connection):
    assert [] == await asyncio.wait_for(client.gather(connection, "nowhere", "acme", ["a"], 600.0), 30)


async def test_lost_connection_raises_unreachable(connection, monkeypatch):
    def gone(*_args, **_kwargs):
        raise Disconnected("there is no connection to NATS at the moment")

    monkeypatch.setattr(connection, "send", gone)
    with pytest.raises(EvenlaneError, match="no connection"):
        await client.gather(connection, "x", "acme", ["a"], 1.0)
