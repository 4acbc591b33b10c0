"""X4: a changed topic acts on the backlog that is there, on every node; nothing is lost or doubled through any of it.

No test waits for a time to pass. That both nodes have taken a change up shows by another topic that was changed after
it: a node hears of changes in their order.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec
import pytest

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.errors import TopicDraining
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from tests.ledger.cluster import PARTITIONS, ProcessCluster
from tests.ledger.entries import Entry
from tests.ledger.process import NodeProcess
from tests.ledger.promises import SECOND, begins, begun_again, begun_too_late, most_in_a_second, never_handled
from tests.ledger.world import TOPIC
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

GROUPS = 24
ON_BOTH = {"groups": GROUPS, "spread": PARTITIONS}
A_WHILE = 30  # messages, handled at so many a second


class Live:
    """Two nodes, and topics that lie on both."""

    def __init__(
        self, cluster: ProcessCluster, nodes: list[NodeProcess], producer: Producer, topics: TopicCache
    ) -> None:
        self.cluster, self.nodes, self.producer, self._topics = cluster, nodes, producer, topics
        self._specs: dict[str, dict[str, object]] = {}
        self._counts: Counter[str] = Counter()

    async def topic(self, project: str, **fields: object) -> None:
        self._specs[project] = ON_BOTH | fields
        await self.cluster.topics(project, **self._specs[project])
        await self._topics.wait_for(project, 20)

    async def put(self, project: str, count: int, *, order: str = "", priority: str | None = None) -> set[str]:
        """So many messages, over all groups in turn; their ids."""
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
        """As anyone may, with `etcdctl`; the revision."""
        self._specs[project] |= changes
        spec = msgspec.json.encode(TOPIC | self._specs[project])
        return await self.cluster.etcd.put(names.key("online", "topics", project), spec)

    async def edit(self, project: str, **changes: object) -> None:
        """Returns when the change is accepted."""
        revision = await self.write(project, **changes)
        key = f"accepted/{project}"
        await until(lambda: self.cluster.history.value(key)["revision"] >= revision, 20, f"{project} to be accepted")

    async def taken_up(self) -> None:
        """By both nodes: all that was accepted before."""
        mark = f"mark-{len(self._specs)}"
        await self.topic(mark, state="paused")
        await self.put(mark, GROUPS)
        await self.edit(mark, state="active")
        await self.begun(mark, 1)

    async def a_while(self) -> None:
        clock = f"clock-{len(self._specs)}"
        await self.topic(clock, qps=A_WHILE)
        await self.cluster.handled(*await self.put(clock, A_WHILE))

    async def put_one(self, project: str) -> None:
        """Raises what a put raises."""
        self._counts[project] += 1
        own = f"{project}-one-{self._counts[project]}"
        receipt = await self.producer.put(project, b"", id=own)
        self.cluster.acknowledged[own] = (receipt.stream, receipt.sequence)

    def of(self, project: str) -> list[Entry]:
        return [entry for entry in self.cluster.entries() if entry.project == project]

    def begins(self, project: str) -> list[Entry]:
        return begins(self.of(project))

    async def begun(self, project: str, count: int) -> None:
        """Wait until each node has begun so many of a project's messages."""

        def so_far() -> bool:
            seen = Counter(entry.pid for entry in self.begins(project))
            return len(seen) == len(self.nodes) and min(seen.values()) >= count

        await until(so_far, 30, f"{count} of {project} to begin on each node")

    async def begins_more(self, project: str, count: int) -> None:
        """Wait until each node has begun so many more than the busiest of them by now."""
        most = max(Counter(entry.pid for entry in self.begins(project)).values())
        await self.begun(project, most + count)

    async def holds_still(self, project: str) -> None:
        """From the moment at which both nodes have taken up what was accepted; and not as nothing waits."""
        await self.taken_up()
        begun = len(self.begins(project))
        await self.a_while()
        assert begun == len(self.begins(project)) < self._counts[project]

    async def keeps(self, project: str, qps: float) -> None:
        """The quota, from now on for a while."""
        since = now_ns()
        await self.a_while()
        begun = sum(entry.at > since for entry in self.begins(project))
        assert begun <= qps * (now_ns() - since) / SECOND + 1 + len(self.nodes)

    async def check(self) -> None:
        """L, D, O: all is handled, once."""
        await self.cluster.handled(timeout=60)
        entries = self.cluster.entries()
        assert [] == self.cluster.refused
        assert set() == never_handled(self.cluster.acknowledged, entries)
        assert [] == begun_again(entries)
        assert [] == begun_too_late(entries)


@contextlib.asynccontextmanager
async def live(folder: Path, **settings: object) -> AsyncIterator[Live]:
    async with ProcessCluster(folder, **settings) as cluster:
        nodes = await cluster.start("a", "b")
        await cluster.carried_out(*nodes)
        topics = TopicCache(cluster.etcd, "online")
        await topics.start()
        async with Producer(settings=cluster.settings, topics=topics) as producer:
            yield Live(cluster, nodes, producer, topics)
        await topics.close()


def overlapping(entries: Iterable[Entry], pid: int, since: int) -> int:
    """The most that ran at once in a node, of what began after an instant."""
    running = most = 0
    for entry in sorted(entries, key=lambda each: (each.at, each.what == "begin")):
        if entry.pid == pid:
            running += 1 if entry.what == "begin" else -1
            most = max(most, running) if entry.at > since and entry.what == "begin" else most
    return most


async def test_pause_and_resume(tmp_path):
    """X4: nothing of the backlog begins while its topic is paused, on either node."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=400)
        await world.put("acme", 1_200)
        await world.begun("acme", 50)
        await world.edit("acme", state="paused")
        await world.holds_still("acme")
        await world.edit("acme", state="active")
        await world.check()


async def test_a_raised_quota(tmp_path):
    """X4: what had minutes to wait for its turn goes at once."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=0.01)
        await world.put("acme", 240)
        await world.begun("acme", 1)
        assert len(world.begins("acme")) < 10
        await world.edit("acme", qps=2_000)
        await world.check()


async def test_a_lowered_quota(tmp_path):
    """X4, Q: from then on there is a second between two starts of a node."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=300)
        await world.put("acme", 900)
        await world.begun("acme", 30)
        await world.edit("acme", qps=2)
        await world.taken_up()
        await world.keeps("acme", 2)
        await world.edit("acme", qps=3_000)
        await world.check()


async def test_weight(tmp_path):
    """X4, W: two topics share a slot evenly, then one of them gets twenty times as much."""
    async with live(tmp_path, concurrency=1) as world:
        for project in ("heavy", "light"):
            await world.topic(project, qps=2_000, weight=1, state="paused")
            await world.put(project, 480, order="sleep 0.01")
        for project in ("heavy", "light"):
            await world.edit(project, state="active")
        for project in ("heavy", "light"):
            await world.begun(project, 60)
        await world.edit("heavy", weight=20)
        await world.taken_up()
        since = now_ns()
        done = len(world.begins("heavy")) + 80
        await until(lambda: len(world.begins("heavy")) >= done, 30, "80 more to begin")
        shares = {project: sum(entry.at > since for entry in world.begins(project)) for project in ("heavy", "light")}
        assert shares["heavy"] > 5 * shares["light"]
        await world.check()


async def test_concurrency(tmp_path):
    """X4: one at a time on a node; then many; then one at a time again."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=2_000, concurrency=1)
        await world.put("acme", 720, order="sleep 0.1")
        await world.begun("acme", 3)
        pids = {entry.pid for entry in world.begins("acme")}
        assert {1} == {overlapping(world.of("acme"), pid, 0) for pid in pids}
        since = now_ns()
        await world.edit("acme", concurrency=40)
        await until(lambda: min(overlapping(world.of("acme"), pid, since) for pid in pids) > 5, 20, "more at once")
        await world.edit("acme", concurrency=1)
        await world.taken_up()
        await world.begins_more("acme", 2)
        since = now_ns()
        await world.begins_more("acme", 3)
        assert {1} == {overlapping(world.of("acme"), pid, since) for pid in pids}
        await world.edit("acme", concurrency=None)
        await world.check()


async def test_ageing(tmp_path):
    """X4, E5: strict priority, then every other turn for the low ones, then strict priority again."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=120)
        await world.put("acme", 960, priority="high")
        low = await world.put("acme", 480, priority="low")
        await world.begun("acme", 30)

        def begun_low() -> int:
            return sum(entry.id in low for entry in world.begins("acme"))

        assert begun_low() == 0
        await world.edit("acme", ageing=0.5)
        await until(lambda: begun_low() > 20, 20, "low ones to begin")
        await world.edit("acme", ageing=None)
        await world.taken_up()
        since = begun_low()
        await world.a_while()
        assert (since, True) == (begun_low(), len(world.begins("acme")) < 960)
        await world.edit("acme", qps=3_000)
        await world.check()


async def test_drain(tmp_path):
    """X4: puts are refused at a running producer, and what is there is handled to its end."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=200)
        await world.put("acme", 480)
        await world.begun("acme", 20)
        await world.edit("acme", state="draining")

        async def refused() -> bool:
            try:
                await world.put_one("acme")
            except TopicDraining:
                return True
            return False

        await until(refused, 20, "puts to be refused")
        await world.check()


async def test_delete(tmp_path):
    """A topic that is deleted while it has a backlog is kept and paused; put back, it goes on where it was."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=400)
        await world.put("acme", 960)
        await world.begun("acme", 50)
        await world.cluster.etcd.delete(names.key("online", "topics", "acme"))
        reported = world.cluster.history
        await until(lambda: reported.value("accepted/acme").get("deleted"), 20, "the deletion to be accepted")
        await world.holds_still("acme")
        with pytest.raises(TopicDraining):
            await world.put_one("acme")
        await world.edit("acme")
        await world.check()


async def test_paused_and_resumed_without_end(tmp_path):
    """What is at the gate or with a handler when a pause comes is neither lost nor handled twice."""
    async with live(tmp_path) as world:
        await world.topic("acme", qps=2_000)
        put = 0
        for number in range(400):
            if put - len(world.begins("acme")) < 300:
                put += len(await world.put("acme", 600, order="sleep 0.005"))
            await world.write("acme", state="paused" if number % 2 else "active")
        await world.edit("acme", state="active")
        await world.check()


async def test_a_thousand_edits_of_a_quota(tmp_path):
    """Q: over both nodes and the whole time never more than the highest quota allows, and the last edit counts."""
    low, high = 20, 60
    async with live(tmp_path) as world:
        await world.topic("acme", qps=high)
        await world.put("acme", 480)
        await world.begun("acme", 5)
        for number in range(1_000):
            await world.write("acme", qps=low if number % 2 else high)
        await world.edit("acme", qps=2)
        await world.taken_up()
        assert most_in_a_second(world.begins("acme")) <= 1.05 * high + 1 + len(world.nodes)
        await world.keeps("acme", 2)
        await world.edit("acme", qps=3_000)
        await world.check()
