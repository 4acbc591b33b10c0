"""Checks each row of the tables in docs/reference/headers-and-subjects.md, which clients in other languages follow."""

import json

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.errors import InvalidName, ProducerClosed
from evenlane.engine.producer.pipeline.router import Router
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.quota.topics.topic import accept, complete, parse_spec
from evenlane.ring.hashing import digest, group_of, partition_of
from tests.support import ROOT

DOC = ROOT / "docs" / "reference" / "headers-and-subjects.md"


def table(*header: str) -> list[list[str]]:
    """The rows of the table with this header, without the backquotes of code."""
    lines = DOC.read_text(encoding="utf-8").splitlines()
    start = lines.index("| " + " | ".join(header) + " |") + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split(" | ")])
    assert rows
    return rows


_PARTITION = ("layout", "project", "group", "spread", "P", "hashed text", "partition")


@pytest.mark.parametrize("row", table("key", "low 64 bits of sha256(key)", "active", "group"))
def test_documented_group_of_key(row):
    key, low, active, group = row
    assert (int(low), int(group)) == (digest(key) % 2**64, group_of(key, int(active)))


@pytest.mark.parametrize("row", table(*_PARTITION))
def test_documented_partition_of_group(row):
    layout, project, group, spread, partitions, text, partition = row
    assert int(partition) == partition_of(project, int(group), int(spread), int(partitions), layout)
    slot = int(group) % int(spread) if layout == "consecutive" else 0
    assert int(partition) == (digest(text) + slot) % int(partitions)


@pytest.mark.parametrize("row", [row for row in table(*_PARTITION) if row[2] == "0"])
async def test_documented_home_partition(row):
    """P1: a producer tells it without a topic, and refuses a name that no project may have."""
    config = ClusterConfig(partitions=int(row[4]), layout=row[0])
    store = MemoryStore(MemoryServer(clock=lambda: 1), "online")
    await store.open()
    async with Producer(settings=Settings(), store=store, topics={}, facts=config) as producer:
        assert int(row[6]) == producer.home_partition(row[1])
        with pytest.raises(InvalidName, match=r"project 'a\.b'"):
            producer.home_partition("a.b")
    with pytest.raises(ProducerClosed):
        producer.home_partition(row[1])


@pytest.mark.parametrize("row", table("put", "subject", "headers"))
def test_documented_subject_and_headers_of_put(row):
    put, subject, headers = json.loads(row[0]), row[1], row[2]
    cluster_config = ClusterConfig()
    spec = {"qps": 1, "groups": put.pop("active"), "spread": put.pop("spread")}
    accepted = accept(complete(parse_spec(json.dumps(spec).encode()), cluster_config), 1, None)
    store = MemoryStore(MemoryServer(clock=lambda: 1_700_000_000_000_000_000), "online")
    sending = Router("online", {put["project"]: accepted}, cluster_config, store).address(Put(body=b"x", **put))
    assert (subject, headers) == (sending.subject, sending.headers.decode().replace("\r\n", "\\n"))


def test_documented_streams_and_subjects():
    example = {"<env>": "online", "<partition>": "7", "<project>": "acme", "<group>": "3", "<priority>": "mid"}
    made = {
        "due now": (names.lane_subject("online", 7, "acme", 3, "mid"), LaneId("lanes", 7)),
        "due later": (names.later_subject("online", 7, "acme", 3, "mid", 5), LaneId("later", 7)),
    }
    for what, subject, stream in table("what", "subject", "stream"):
        for name, value in (example | {"<hour>": "5"}).items():
            subject, stream = subject.replace(name, value), stream.replace(name, value)  # noqa: PLW2901
        assert (subject, stream) == (made[what][0], names.stream("online", made[what][1]))
