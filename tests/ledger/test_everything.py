"""One run with every option of a message and every kind of fault, in which each message is accounted for."""

import asyncio
import logging
import signal
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import BacklogFull
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from tests.ledger import accounts, mixture
from tests.ledger.cli import patiently
from tests.ledger.handlers import forgive
from tests.ledger.mixture import Mixture
from tests.ledger.promises import SECOND
from tests.ledger.replay import check_handled_twice, check_key_order, crashes, may_come_again
from tests.ledger.supervised import End, Supervised
from tests.ledger.world import ProcessWorld
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

CONCURRENCY = 64
SLICE = 500
LATE_NS = SECOND // 20  # the node estimates the clock of nats-server
TOPIC = {"ack_wait": 1, "groups": 4}


@dataclass(frozen=True)
class Size:
    messages: int
    rate: int  # msg/s
    nodes: int
    partitions: int
    kills: int  # of a node, in addition to one restart and one kill of nats-server
    poison: int
    brief: int


@dataclass
class Story:
    world: ProcessWorld
    size: Size
    mix: Mixture
    nodes: list[Supervised]
    expires: dict[str, int] = field(default_factory=dict)  # id -> the latest time, ns since boot
    dropped: set[str] = field(default_factory=set)

    # ---- load

    async def topics(self) -> None:
        for kind in ("plain", "late"):
            await self.world.topics(*mixture.projects(kind), **TOPIC)
        await self.world.topics(*mixture.projects("ordered"), **TOPIC, ordered=True)
        for project, fields in mixture.TOPICS.items():
            await self.world.topics(project, **({"ack_wait": 1} | fields))

    async def load(self, producer: Producer) -> None:
        """Put the mixture, evenly spread over the time of the faults."""
        clock = asyncio.get_running_loop().time
        start, part = clock(), list[Put]()
        for number, put in enumerate(self.mix.puts(), 1):
            part.append(put)
            if len(part) == SLICE or number == self.size.messages:
                await self.world.put(producer, part)
                part = []
                await asyncio.sleep(max(0.0, start + number / self.size.rate - clock()))

    async def special(self, producer: Producer) -> None:
        """Put messages that aren't part of the mixture, and use the command line on them."""
        put, mix = self.world.put, self.mix
        for project in ("brief", "brief-dead"):
            await put(producer, mix.some(project, self.size.brief))
            self.expires |= {f"{project}-{n}": now_ns() + int(mixture.TTL_S * SECOND) for n in range(self.size.brief)}
        await put(producer, mix.some("parked", 50))
        await put(producer, mix.some("full", mixture.MOST_WAITING + 100))
        await put(producer, mix.some("purged", 200))
        reported = await patiently(self.world, "backlog", "cancel", "purged", "purged-7")
        _log.info("cancel: %s", reported)
        reported = await patiently(self.world, "backlog", "purge", "purged", "--yes")
        _log.info("purge: %s", reported)
        self.dropped |= {f"purged-{n}" for n in range(200)}
        await self._fill_small(producer)
        await put(producer, mix.some("poison", self.size.poison, "exit"))

    async def _fill_small(self, producer: Producer) -> None:
        """Put a few at a time, so that nodes publish counts in between."""
        puts = self.mix.some("small", 4 * mixture.BACKLOG)
        while puts and not any(
            isinstance(error, BacklogFull) and "small" in str(error) for error in self.world.refused
        ):
            await self.world.put(producer, puts[:20])
            puts = puts[20:]
            await asyncio.sleep(0.3)  # a pace: no event shows that the next counts have arrived
        await patiently(self.world, "topics", "resume", "small")

    # ---- faults

    async def disturb(self) -> None:
        """Cause one fault after another under load, and hit the nodes in turn."""
        faults = ["nats", *["kill"] * self.size.kills, "restart"]
        for number, fault in enumerate(faults, 1):
            share = number / (len(faults) + 1)
            await until(lambda share=share: self._put_so_far() >= share * self.size.messages, 300, "the load")
            victim = self.nodes[number % len(self.nodes)]
            if fault == "nats":
                await self.world.servers.nats.kill()
                await self.world.servers.nats.start()
            else:
                await until(lambda victim=victim: victim.serving, 60, "a node that serves")
                victim.node.send(signal.SIGKILL if fault == "kill" else signal.SIGTERM)

    def _put_so_far(self) -> int:
        return len(self.world.acknowledged) + len(self.world.refused)

    @property
    def ends(self) -> list[End]:
        return [end for node in self.nodes for end in node.ends]

    # ---- the end

    def to_be_dead(self) -> set[str]:
        """The acknowledged messages that no attempt can save."""
        return self.mix.ordered("reject", "stubborn", "exit") & self.world.acknowledged.keys()

    async def settled(self) -> None:
        """Wait until each message is handled, is dead, or waits on purpose."""
        dead, acknowledged = await self.world.dead_letters(), self.world.acknowledged
        aside = {own for own in acknowledged if own.split("-")[0] in ("brief", "parked", "full", "purged")}
        await self.world.handled(*acknowledged.keys() - self.to_be_dead() - aside, timeout=180)

        async def all_dead() -> bool:
            return self.to_be_dead() <= await dead.ids()

        await until(all_dead, 120, "the dead letters")
        await until(lambda: now_ns() > max(self.expires.values()), 30, "the last expiry")
        self.dead_letters = {dead_letter.id: dead_letter for dead_letter in await dead.read()}

    async def replayed(self) -> None:
        """Forgive stubborn messages, and replay the dead letters; drop those of ordered projects."""
        forgive(self.nodes[0].node.ledger)
        stubborn = self.mix.ordered("stubborn") & self.world.acknowledged.keys()
        for project in sorted({dead_letter.project for dead_letter in self.dead_letters.values()}):
            if project.startswith("ordered"):
                await patiently(self.world, "dlq", "drop", project, "--all", "--yes")
            elif project.startswith(("plain", "late")):
                await patiently(self.world, "dlq", "replay", project, "--all")
        self.dropped |= {own for own in self.to_be_dead() if own in self.mix.keys}
        await self.world.handled(*stubborn - self.mix.keys.keys(), timeout=60)
        rejected = self.mix.ordered("reject") & self.world.acknowledged.keys() - self.mix.keys.keys()

        async def dead_again() -> bool:
            return rejected <= await (await self.world.dead_letters()).ids()

        await until(dead_again, 60, "the rejected messages to be dead again")


SMALL = Size(6_000, 1_000, nodes=2, partitions=12, kills=1, poison=1, brief=60)
FULL = Size(200_000, 2_500, nodes=3, partitions=32, kills=3, poison=3, brief=300)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", [SMALL, pytest.param(FULL, marks=pytest.mark.full)], ids=["6000", "200000"])
async def test_everything_at_once_is_accounted_for(tmp_path, size):
    """P12, L, D, K1, K2, K4, K5, K6, X11, E11, E12, E13: put = handled + dead + expired + dropped + waiting; only
    messages of killed processes are repeated; keys stay in order.
    """
    settings = {"partitions": size.partitions, "group_qps": 50_000, "max_queue_backlog": mixture.MOST_WAITING}
    async with ProcessWorld(tmp_path, **settings) as world:
        began = now_ns()
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(Supervised(world, f"node-{n}", concurrency=CONCURRENCY))
                for n in range(size.nodes)
            ]
            story = Story(world, size, Mixture(size.messages, seed=5), nodes)
            await story.topics()
            producer = await world.producer()
            async with asyncio.TaskGroup() as group:
                group.create_task(story.load(producer))
                group.create_task(story.special(producer))
                group.create_task(story.disturb())
                group.create_task(run_sandbox(world, size.messages // 20))
            put_s = (now_ns() - began) / SECOND
            await story.settled()
            await story.replayed()
        await check(story)
        _log.info("%d messages: put in %.0f s, all in %.0f s", size.messages, put_s, (now_ns() - began) / SECOND)


async def run_sandbox(world: ProcessWorld, messages: int) -> None:
    """Run a second environment on the same servers: the same projects and message ids, and its own node."""
    folder = world.folder / "sandbox"
    folder.mkdir()
    async with (
        ProcessWorld(folder, servers=world.servers, env="sandbox", partitions=8) as sandbox,
        Supervised(sandbox, "node-sandbox", concurrency=CONCURRENCY),  # nats-server may be killed while it starts
    ):
        mix = Mixture(messages, seed=5)
        await sandbox.topics(*mixture.projects("plain"), *mixture.projects("late"), **TOPIC)
        await sandbox.topics(*mixture.projects("ordered"), **TOPIC, ordered=True)
        await sandbox.put(await sandbox.producer(), list(mix.puts()))
        hopeless = mix.ordered("reject", "stubborn")
        await sandbox.handled(*sandbox.acknowledged.keys() - hopeless, timeout=120)
        dead = await sandbox.dead_letters()

        async def all_dead() -> bool:
            return hopeless & sandbox.acknowledged.keys() <= await dead.ids()

        await until(all_dead, 60, "sandbox's dead letters")
        assert set(sandbox.ids("begin")) <= mix.orders.keys()


async def check(story: Story) -> None:
    world, mix = story.world, story.mix
    entries, acknowledged = world.entries(), world.acknowledged.keys()
    handled = set(world.ids())
    dead = Counter([dead_letter.id for dead_letter in await (await world.dead_letters()).read()])
    waiting = await accounts.waiting(world.settings, story.size.partitions)
    expired = acknowledged - handled - dead.keys() - story.dropped - waiting
    killed = [pid for node in story.nodes for pid in node.killed]

    # L: each message is in an account, and only messages repeated after a death are in two
    assert set() == expired - story.expires.keys()
    assert {own for own in acknowledged if own.startswith(("parked", "full"))} == waiting
    assert set() == handled & (waiting | story.dropped)
    twice = {own for own, count in dead.items() if count > 1} | (handled & dead.keys())
    may = may_come_again(entries, crashes(entries, killed))
    assert set() == twice - may
    # no message was handled that shouldn't be
    assert set() == handled & mix.ordered("reject", "exit")
    late = [e for e in entries if e.what == "begin" and e.chosen > story.expires.get(e.id, e.chosen) + LATE_NS]
    assert [] == late
    # dead letters and refusals have the right reasons
    reasons = Counter(story.dead_letters[own].reason for own in story.dead_letters)
    assert {"expired"} == {
        dead_letter.reason for own, dead_letter in story.dead_letters.items() if own in story.expires
    }
    assert all("died" in story.dead_letters[own].reason for own in mix.ordered("exit"))
    refused = Counter(type(error).__name__ for error in world.refused)
    assert {"BacklogFull"} == refused.keys() - {"NotAcknowledged"}
    # D and order
    doubled = check_handled_twice(entries, killed)
    pairs = check_key_order(entries, mix.keys_as_stored(world.acknowledged), killed)
    _log.info(
        "%d acknowledged = %d handled + %d dead + %d expired + %d dropped + %d waiting; refused %s; reasons %s; "
        "%d processes ended, %d of them killed; handled twice %d of %d that may; dead twice or after all %s; "
        "%d ordered",
        len(acknowledged), len(handled & acknowledged), len(dead), len(expired), len(story.dropped & acknowledged),
        len(waiting), dict(refused), dict(reasons), len(story.ends), len(killed), len(doubled), len(may),
        {own: dead[own] for own in twice}, pairs,
    )  # fmt: skip
