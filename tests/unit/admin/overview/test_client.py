"""Overview client: it gathers the records in etcd and the nodes' answers."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import msgspec
import pytest

from evenlane.engine.admin.overview.client import OverviewClient, gather, read_answers
from evenlane.engine.admin.overview.messages import RATES, Band, NodeOverview, Rest, Row
from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import LeaderRecord, NodeRecord, OwnerRecord, encode
from tests.support.overview_answers import row


class Line:
    """A connection on which these answers arrive at once."""

    def __init__(self, *bodies, headers=b""):
        self.bodies, self.headers, self.listeners, self.asked = bodies, headers, {}, []

    def listen(self, subject, on_message):
        self.listeners[subject] = on_message
        return subject

    def new_inbox(self):
        return "_INBOX.test"

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


async def test_overview_combines_etcd_and_the_nodes_answers(etcd):
    """E7: it names owners that don't answer."""
    line = Line(answer_of("a", rows=[row("acme", backlog=3)]), answer_of("b"))
    client = OverviewClient(etcd, "online", lambda: nullcontext(line), timeout_s=0.01)
    for _ in range(2):
        shown = await client.overview()
    assert ({}, ["ask.online.overview"] * 2) == (line.listeners, line.asked)
    assert [("a", True, False, [0]), ("b", True, True, [1]), ("c", False, False, [2])] == [
        (node["id"], node["answered"], node["leader"], node["partitions"]) for node in shown["nodes"]
    ]
    assert ([0.5, 0.0, None], [3]) == ([node["cpu"] for node in shown["nodes"]], shown["unowned"])
    assert [("acme", 3)] == [(tenant["project"], tenant["backlog"]) for tenant in shown["tenants"]]
    assert shown["notes"][0] == "node c did not answer: its figures are missing"


async def test_unknown_environment_raises(etcd):
    with pytest.raises(EvenlaneError, match="environment 'onlien' does not exist"):
        await OverviewClient(etcd, "onlien", lambda: nullcontext(Line())).overview()


async def test_no_request_without_nodes():
    etcd = MemoryCoordination()
    await agree_cluster_config(etcd, "online", {})
    line = Line()
    shown = await OverviewClient(etcd, "online", lambda: nullcontext(line)).overview()
    assert ([], []) == (line.asked, shown["nodes"])
    assert {"projects": 0, "backlog": 0, "in_flight": 0, **dict.fromkeys(RATES, 0.0)} == shown["totals"]
    assert 128 == len(shown["unowned"])
    await etcd.close()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"junk", b"[]", b"{}", b'{"node": 1}', b"\xff", b"[" * 100_000, answer_of("z"),
        answer_of("b", rows=[Row("acme", [Band()])]),
        answer_of("b", rest=Rest(1, [])),
    ],
)  # fmt: skip
async def test_invalid_answer_is_skipped(body, etcd):
    """So is an answer of a node that isn't in the environment, or has other priorities."""
    line = Line(body, answer_of("a", rows=[row("acme", backlog=3)]))
    shown = await OverviewClient(etcd, "online", lambda: nullcontext(line), timeout_s=0.01).overview()
    assert ["a"] == [node["id"] for node in shown["nodes"] if node["answered"]]
    assert 3 == shown["totals"]["backlog"]


async def test_answers_are_decoded_in_a_thread(etcd):
    """Decoding hundreds of tenants of ten nodes would block a node's loop each second."""

    class Executor(ThreadPoolExecutor):
        works = []  # noqa: RUF012

        def submit(self, work, /, *args):
            self.works.append(work)
            return super().submit(work, *args)

    asyncio.get_running_loop().set_default_executor(Executor())
    line = Line(answer_of("a"), answer_of("b"), answer_of("c"))
    await OverviewClient(etcd, "online", lambda: nullcontext(line)).overview()
    assert 2 == len(Executor.works)  # to decode, and to build the document


def test_decoding_pauses_garbage_collection():
    """Collecting among all objects of a node would take longer than the decoding."""

    def bodies():
        yield answer_of("a")
        assert not gc.isenabled()

    assert 1 == len(read_answers(bodies(), 3))
    assert gc.isenabled()


async def test_gather_returns_once_all_nodes_have_answered():
    """Neither the answer of another node nor a second one of the same node ends it."""
    line = Line(answer_of("z"), answer_of("a"), answer_of("a"), answer_of("b"))
    assert [answer_of("a"), answer_of("b")] == await gather(line, "x", ["a", "b"], 600.0)


async def test_gather_returns_at_once_if_no_node_listens():
    assert [] == await gather(Line(b"", headers=b"NATS/1.0 503\r\n\r\n"), "x", ["a"], 600.0)


async def test_gather_without_a_connection_raises():
    line = Line()

    def gone(*_, **__):
        raise Disconnected("there is no connection to NATS at the moment")

    line.send = gone
    with pytest.raises(Unreachable, match="no connection"):
        await gather(line, "x", ["a"], 1.0)
    assert {} == line.listeners
