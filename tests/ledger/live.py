"""The world of tests of live changes: two nodes, topics that are on both, and a producer."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from tests.ledger.cluster import PARTITIONS, ProcessCluster
from tests.ledger.entries import Entry
from tests.ledger.process import NodeProcess
from tests.ledger.promises import SECOND, begun_again, begun_too_late, never_handled
from tests.ledger.world import TOPIC
from tests.support.until import until

GROUPS = 24
ON_BOTH = {"groups": GROUPS, "spread": PARTITIONS}
A_WHILE = 30  # messages, handled at the same number each second


class LiveWorld:
    """Two nodes, and topics that are on both. No method waits for a time to pass: other topics serve as clocks."""

    def __init__(
        self, cluster: ProcessCluster, nodes: list[NodeProcess], producer: Producer, topics: TopicCache
    ) -> None:
        self.cluster, self.nodes, self.producer, self._topics = cluster, nodes, producer, topics
        self._specs: dict[str, dict[str, object]] = {}
        self._counts: Counter[str] = Counter()

    async def topic(self, project: str, **fields: object) -> None:
        self._specs[project] = ON_BOTH | fields
        await self.cluster.topics(project, **self._specs[project])
        await self._topics.wait_for(project, 30)

    async def put(self, project: str, count: int, *, order: str = "", priority: str | None = None) -> set[str]:
        """Put `count` messages, over all groups in turn. Return their ids."""
        first = self._counts[project]
        self._counts[project] += count
        headers = {"order": order} if order else None
        puts = [
            Put(project, b"", priority, group=number % GROUPS, id=f"{project}-{number}", headers=headers)
            for number in range(first, first + count)
        ]
        await self.cluster.put(self.producer, puts)
        return {str(put.id) for put in puts}

    async def write(self, project: str, **changes: object) -> int:
        """Write the spec, as anyone may with `etcdctl`. Return the revision."""
        self._specs[project] |= changes
        spec = msgspec.json.encode(TOPIC | self._specs[project])
        return await self.cluster.etcd.put(names.key("online", "topics", project), spec)

    async def edit(self, project: str, **changes: object) -> None:
        """Change the topic, and return when the change is accepted."""
        revision = await self.write(project, **changes)
        key = f"accepted/{project}"
        await until(lambda: self.cluster.history.value(key)["revision"] >= revision, 30, f"{project} to be accepted")

    async def taken_up(self) -> None:
        """Wait until both nodes use all changes accepted so far: each receives them in order."""
        mark = f"mark-{len(self._specs)}"
        await self.topic(mark, state="paused")
        await self.put(mark, GROUPS)
        await self.edit(mark, state="active")
        await self.begun(mark, 1)

    async def a_while(self) -> None:
        """Return in about a second."""
        clock = f"clock-{len(self._specs)}"
        await self.topic(clock, qps=A_WHILE)
        await self.cluster.handled(*await self.put(clock, A_WHILE))

    async def put_one(self, project: str) -> None:
        """Put one message. Raises the exceptions of a put."""
        self._counts[project] += 1
        own = f"{project}-one-{self._counts[project]}"
        receipt = await self.producer.put(project, b"", id=own)
        self.cluster.acknowledged[own] = (receipt.stream, receipt.sequence)

    def of(self, project: str) -> list[Entry]:
        return self.cluster.of(project)

    def begins(self, project: str) -> list[Entry]:
        return self.cluster.begins(project)

    async def begun(self, project: str, count: int) -> None:
        """Wait until each node has begun `count` messages of a project."""

        def so_far() -> bool:
            seen = Counter(entry.pid for entry in self.begins(project))
            return len(seen) == len(self.nodes) and min(seen.values()) >= count

        await until(so_far, 60, f"{count} of {project} to begin on each node")

    async def begins_more(self, project: str, count: int) -> None:
        """Wait until each node has begun `count` more than the busier one has by now."""
        most = max(Counter(entry.pid for entry in self.begins(project)).values())
        await self.begun(project, most + count)

    async def holds_still(self, project: str) -> None:
        """Check that no message begins once both nodes use the last change, although some wait."""
        await self.taken_up()
        begun = len(self.begins(project))
        await self.a_while()
        assert begun == len(self.begins(project)) < self._counts[project]

    async def keeps(self, project: str, qps: float) -> None:
        """Check the quota for a while."""
        since = now_ns()
        await self.a_while()
        begun = sum(entry.at > since for entry in self.begins(project))
        assert begun <= qps * (now_ns() - since) / SECOND + 1 + len(self.nodes)

    async def check(self) -> None:
        """L, D, O: all messages are handled, once."""
        await self.cluster.handled(timeout=60)
        entries = self.cluster.entries()
        assert [] == self.cluster.refused
        assert set() == never_handled(self.cluster.acknowledged, entries)
        assert [] == begun_again(entries)
        assert [] == begun_too_late(entries)


@contextlib.asynccontextmanager
async def live(folder: Path, **settings: object) -> AsyncIterator[LiveWorld]:
    async with ProcessCluster(folder, **({"lease_ttl": 10} | settings)) as cluster:
        nodes = await cluster.start("a", "b")
        await cluster.owned_by(*nodes)
        topics = TopicCache(cluster.etcd, "online")
        await topics.start()
        async with Producer(settings=cluster.settings, topics=topics) as producer:
            yield LiveWorld(cluster, nodes, producer, topics)
        await topics.close()


def overlapping(entries: Iterable[Entry], pid: int, since: int) -> int:
    """The most handlers that ran at once in a node, of those that began after `since`."""
    running = most = 0
    for entry in sorted(entries, key=lambda each: (each.at, each.what == "begin")):
        if entry.pid == pid:
            running += 1 if entry.what == "begin" else -1
            most = max(most, running) if entry.at > since and entry.what == "begin" else most
    return most
