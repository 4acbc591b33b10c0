"""What the asker of `evenlane why` reads in etcd: owners, groups without one (X8)."""

from contextlib import nullcontext

import msgspec
import pytest

from engine import names
from engine.asking import Asker, Cluster
from engine.backlog.outside import accepted_of
from engine.backlog.owners import owners
from engine.errors import ConfigError, EvenlaneError, InvalidName, UnknownProject
from engine.facts import Facts, agree
from engine.forecast import Rates
from engine.waiting import Answer, Tally, View
from quota.topic import Topic, accept, delete, encode
from ring.hashing import partition_of
from ring.memory import MemoryCoordination

FACTS = Facts(partitions=16)
TOPIC = Topic(qps=100.0, groups=20, burst=1, weight=100.0, spread=8)
ACCEPTED = accept(TOPIC, 1, None)


def test_groups_of_partitions_that_nobody_owns():
    """X8: `no_owner` counts the project's own groups, wherever they hash to; draining ones as well."""
    own = [partition_of("acme", group, 8, 16) for group in range(20)]
    all_owned = dict.fromkeys(range(16), "a")
    assert 0 == Cluster("online", FACTS, ACCEPTED, all_owned).unowned("acme")
    assert 20 == Cluster("online", FACTS, ACCEPTED, {}).unowned("acme")
    left = {number: "a" for number in range(16) if number != own[3]}
    assert own.count(own[3]) == Cluster("online", FACTS, ACCEPTED, left).unowned("acme")
    fewer = accept(Topic(qps=1.0, groups=1, burst=1, weight=1.0, spread=8), 2, ACCEPTED)
    assert own.count(own[3]) == Cluster("online", FACTS, fewer, left).unowned("acme")
    assert 0 == Cluster("online", FACTS, None, {}).unowned("acme")


async def test_owners_are_read_and_what_is_no_owner_is_passed_over():
    etcd = MemoryCoordination()
    for key, value in {"0": b'{"id": "a"}', "7": b'{"id": "b"}', "x": b'{"id": "c"}', "8": b"[]", "9": b"{}"}.items():
        await etcd.put(names.key("online", "owners", key), value)
    await etcd.put(names.key("sandbox", "owners", 1), b'{"id": "d"}')
    assert {0: "a", 7: "b"} == await owners(etcd, "online", 128)
    assert {} == await owners(etcd, "other", 128)
    await etcd.close()


async def test_an_accepted_topic_that_cant_be_read_is_none():
    etcd = MemoryCoordination()
    key = names.key("online", "accepted", "acme")
    assert await accepted_of(etcd, "online", "acme") is None
    await etcd.put(key, b"{")
    assert await accepted_of(etcd, "online", "acme") is None
    await etcd.put(key, encode(ACCEPTED))
    assert ACCEPTED == await accepted_of(etcd, "online", "acme")
    await etcd.close()


# ---- over connections that are there


class Line:
    """Where a node answers at once, or nobody does."""

    def __init__(self, *answers):
        self.answers, self.heard, self.asked = answers, {}, []

    def listen(self, subject, heard):
        self.heard[len(self.heard) + 1] = subject, heard
        return len(self.heard)

    def unlisten(self, sid):
        del self.heard[sid]

    def send(self, subject, body, headers=b"", reply=""):
        self.asked.append(subject)
        for listening, heard in list(self.heard.values()):
            if listening == reply:
                for answer in self.answers:
                    heard(b"", b"", b"", msgspec.json.encode(answer))


def answer(backlog=0, reason=None, node="a"):
    tally = Tally(0)
    tally.add(View("mid", 0, backlog, reason=reason))
    return Answer(node, min(backlog, 1), tally.parts, tally.deepest, Rates(seconds=1.0))


@pytest.fixture
async def etcd():
    etcd = MemoryCoordination()
    await agree(etcd, "online", {"partitions": 16})
    for number in range(16):
        await etcd.put(names.key("online", "owners", number), b'{"id": "a"}')
    yield etcd
    await etcd.close()


async def test_a_node_asks_over_what_it_has(etcd):
    """X8: nothing is opened, and nothing is left behind."""
    await etcd.put(names.key("online", "accepted", "acme"), encode(ACCEPTED))
    line = Line(answer(7, "quota"))
    asker = Asker(etcd, "online", lambda: nullcontext(line))
    for _ in range(2):
        assert 7 == (await asker.why("acme", "mid", 60.0))["backlog"]
    assert ({}, ["ask.online.why.acme"] * 2) == (line.heard, line.asked)


async def test_a_deleted_topic_is_told_as_such(etcd):
    """Issue 6: kept and paused, said clearly, until it is drained or dropped on purpose."""
    await etcd.put(names.key("online", "accepted", "acme"), encode(delete(ACCEPTED)))
    told = await Asker(etcd, "online", lambda: nullcontext(Line(answer(7, "paused")))).why("acme")
    assert ("paused", True) == (told["state"], told["deleted"])
    (reason,) = told["priorities"][1]["reasons"]
    for part in ("was deleted", "evenlane topics drain acme", "evenlane backlog purge acme"):
        assert part in reason["sentence"]
    assert told["forecast"]["resumed_sentence"].startswith("once it is drained")


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (("a.b",), InvalidName, "project 'a.b' is not valid"),
        (("acme", "urgent"), InvalidName, "priority 'urgent' is none of this cluster's"),
        (("acme", None, 0.0), ConfigError, "within must be more than 0 seconds"),
        (("nobody",), UnknownProject, "project 'nobody' has no topic"),
    ],
)
async def test_what_cant_be_asked(etcd, arguments, error, sentence):
    await etcd.put(names.key("online", "accepted", "acme"), encode(ACCEPTED))
    with pytest.raises(error, match=sentence):
        await Asker(etcd, "online", lambda: nullcontext(Line(answer()))).why(*arguments)


async def test_nobody_to_ask(etcd, monkeypatch):
    """No node owns anything; or all are silent."""
    await etcd.put(names.key("online", "accepted", "acme"), encode(ACCEPTED))
    silent = Asker(etcd, "online", lambda: nullcontext(Line()))
    monkeypatch.setattr("engine.asking.TIMEOUT_S", 0.01)
    with pytest.raises(EvenlaneError, match="no answer came"):
        await silent.why("acme")
    for number in range(16):
        await etcd.delete(names.key("online", "owners", number))
    with pytest.raises(EvenlaneError, match="no_owner: no node runs"):
        await silent.why("acme")
