"""The asker's side: what etcd and the nodes tell, gathered."""

import gc
import threading
from contextlib import nullcontext

import msgspec
import pytest

from evenlane.engine.admin.overview import client
from evenlane.engine.admin.overview.client import OverviewClient, gather
from evenlane.engine.admin.overview.messages import Band, NodeOverview, Rest, Row
from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import LeaderRecord, NodeRecord, OwnerRecord, encode
from tests.support.overview_answers import row


class Line:
    """Where these answer at once."""

    def __init__(self, *bodies, headers=b""):
        self.bodies, self.headers, self.listeners, self.asked = bodies, headers, {}, []

    def listen(self, subject, on_message):
        self.listeners[subject] = on_message
        return subject

    def unlisten(self, sid):
        del self.listeners[sid]

    def send(self, subject, body, headers=b"", reply=""):
        self.asked.append(subject)
        for each in self.bodies:
            if reply in self.listeners:
                self.listeners[reply](b"", b"", self.headers, each)


def answer_of(node, **fields):
    return msgspec.json.encode(NodeOverview(node, **fields))


@pytest.fixture
async def etcd():
    etcd = MemoryCoordination()
    await agree_cluster_config(etcd, "online", {"partitions": 4})
    for key, value in {
        ("nodes", "a"): NodeRecord(host="h", cpu=0.5, at=1.0),
        ("nodes", "b"): NodeRecord(host="i", at=1.0),
        ("leader",): LeaderRecord(id="b"),
        ("owners", "0"): OwnerRecord(id="a"),
        ("owners", "1"): OwnerRecord(id="b"),
        ("owners", "2"): OwnerRecord(id="c"),
    }.items():
        await etcd.put(names.key("online", *key), encode(value))
    await etcd.put(names.key("online", "owners", "9"), b"{}")
    await etcd.put(names.key("online", "nodes", "junk"), b"[")
    yield etcd
    await etcd.close()


async def test_an_overview_of_what_etcd_and_nodes_tell(etcd):
    """Issue 7.4: nodes and ring by etcd, tenants by the nodes; who owns something and doesn't answer is told."""
    line = Line(answer_of("a", rows=[row("acme", backlog=3)]), answer_of("b"))
    asker = OverviewClient(etcd, "online", lambda: nullcontext(line), timeout_s=0.01)
    for _ in range(2):
        reported = await asker.overview()
    assert ({}, ["ask.online.overview"] * 2) == (line.listeners, line.asked)
    assert [("a", True, False, [0]), ("b", True, True, [1]), ("c", False, False, [2])] == [
        (node["id"], node["answered"], node["leader"], node["partitions"]) for node in reported["nodes"]
    ]
    assert ([0.5, 0.0, None], [3]) == ([node["cpu"] for node in reported["nodes"]], reported["unowned"])
    assert [("acme", 3)] == [(tenant["project"], tenant["backlog"]) for tenant in reported["tenants"]]
    assert reported["notes"][0] == "node c gave no answer: what it has is missing"


async def test_an_environment_that_isnt_there(etcd):
    """A wrong name is told, rather than an empty table shown."""
    with pytest.raises(EvenlaneError, match="environment 'onlien' is not there"):
        await OverviewClient(etcd, "onlien", lambda: nullcontext(Line())).overview()


async def test_where_no_node_is_nobody_is_asked():
    etcd = MemoryCoordination()
    await agree_cluster_config(etcd, "online", {})
    line = Line()
    reported = await OverviewClient(etcd, "online", lambda: nullcontext(line)).overview()
    assert ([], [], {"projects": 0, "backlog": 0, "in_flight": 0, "arriving": 0.0, "leaving": 0.0}) == (
        line.asked, reported["nodes"], reported["totals"],
    )  # fmt: skip
    assert 128 == len(reported["unowned"])
    await etcd.close()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"junk", b"[]", b"{}", b'{"node": 1}', b"\xff", b"[" * 100_000, answer_of("z"),
        answer_of("b", rows=[Row("acme", [Band()])]),
        answer_of("b", rest=Rest(1, [])),
    ],
)  # fmt: skip
async def test_what_is_no_answer_is_passed_over(body, etcd):
    """Nor is one of somebody who isn't a node of the environment, or has other priorities."""
    line = Line(body, answer_of("a", rows=[row("acme", backlog=3)]))
    reported = await OverviewClient(etcd, "online", lambda: nullcontext(line), timeout_s=0.01).overview()
    assert ["a"] == [node["id"] for node in reported["nodes"] if node["answered"]]
    assert 3 == reported["totals"]["backlog"]


async def test_answers_are_read_in_a_thread(etcd, monkeypatch):
    """Issue 7.1: hundreds of tenants of ten nodes, each second, would hold a node's loop for as long as they take."""
    threads = []
    read = client._read

    def reading(*arguments):
        threads.append(threading.current_thread())
        assert not gc.isenabled()  # among all objects of a node that takes longer than all the rest
        return read(*arguments)

    monkeypatch.setattr(client, "_read", reading)
    line = Line(answer_of("a"), answer_of("b"), answer_of("c"))
    await OverviewClient(etcd, "online", lambda: nullcontext(line)).overview()
    assert 3 == len(threads)
    assert threading.main_thread() not in threads
    assert gc.isenabled()


async def test_who_has_answered_isnt_waited_for(etcd):
    """Nobody's stray answer ends it early, nor a second one of the same node."""
    line = Line(answer_of("z"), answer_of("a"), answer_of("a"), answer_of("b"))
    assert [answer_of("a"), answer_of("b")] == await gather(line, "x", ["a", "b"], 600.0)


async def test_where_nobody_listens_nothing_is_waited_for():
    assert [] == await gather(Line(b"", headers=b"NATS/1.0 503\r\n\r\n"), "x", ["a"], 600.0)


async def test_no_connection_is_unreachable():
    line = Line()

    def gone(*_, **__):
        raise Disconnected("there is no connection to NATS at the moment")

    line.send = gone
    with pytest.raises(Unreachable, match="no connection"):
        await gather(line, "x", ["a"], 1.0)
    assert {} == line.listeners
