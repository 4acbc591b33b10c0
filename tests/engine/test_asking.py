"""What the asker of `evenlane why` reads in etcd: owners, groups without one (X8)."""

from engine import names
from engine.asking import Cluster
from engine.backlog.outside import accepted_of
from engine.backlog.owners import owners
from engine.facts import Facts
from quota.topic import Topic, accept, encode
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
