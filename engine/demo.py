"""The demo: real servers, hundreds of projects, failing attempts; and a ledger in which every message turns up."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import nats
from rich.console import Console
from rich.live import Live
from rich.table import Table

from engine import headers as h
from engine import names
from engine.engine import Engine
from engine.producer import Producer, Put
from engine.servers import Servers
from engine.settings import load
from engine.topics import TopicBook
from ring.coordination import Put as Write
from ring.etcd import EtcdCoordination

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from engine.message import Message

_TOPIC = {"qps": 1000, "groups": 10, "max_attempts": 3, "backoff": {"base": 0.3, "factor": 2}}
_FAILS = 20  # one attempt in so many
_BATCH_S = 0.05
_PATIENCE_S = 120.0
_KEYS_AT_ONCE = 100


@dataclass
class Ledger:
    """Ids of what was acknowledged, handled and found among the dead letters."""

    put: set[str] = field(default_factory=set)
    handled: Counter[str] = field(default_factory=Counter)
    dead: set[str] = field(default_factory=set)
    attempts: int = 0
    failed: int = 0
    by_priority: Counter[str] = field(default_factory=Counter)

    @property
    def open(self) -> int:
        return len(self.put) - len(self.handled) - len(self.dead - self.handled.keys())

    def sums(self) -> dict[str, int]:
        lost = self.put - self.handled.keys() - self.dead
        return {
            "put": len(self.put),
            "handled": len(self.handled),
            "duplicates": sum(self.handled.values()) - len(self.handled),
            "dead": len(self.dead),
            "lost": len(lost),
        }


class Demo:
    """`seconds` of `rate` messages per second over `projects` tenants; then it waits until all have ended."""

    def __init__(self, seconds: float, projects: int, rate: int, *, live: bool) -> None:
        self._seconds, self._rate, self._live = seconds, rate, live
        self._projects = [f"tenant-{number:03d}" for number in range(projects)]
        self._ledger = Ledger()
        self._refused = 0
        self._console = Console(stderr=True)

    async def run(self) -> dict[str, Any]:
        """The ledger, as the command's JSON shows it."""
        started = monotonic()
        with tempfile.TemporaryDirectory(prefix="evenlane-demo-") as folder:
            self._say("starting NATS and etcd ...")
            async with Servers(Path(folder)) as servers:
                flags = {"nats": servers.nats.url, "etcd": servers.etcd.endpoint, "concurrency": 128}
                await self._story({name: str(value) for name, value in flags.items()})
        sums = self._ledger.sums()
        if self._live:
            self._console.print(self._closing(sums))
        return {
            "ledger": sums,
            "attempts": {"all": self._ledger.attempts, "failed": self._ledger.failed},
            "projects": len(self._projects),
            "seconds": round(monotonic() - started, 1),
        }

    async def _story(self, flags: dict[str, str]) -> None:
        settings = load(flags, environ={}).settings
        coordination = EtcdCoordination(settings.etcd)
        await self._make_topics(coordination)
        topics = TopicBook(coordination, settings.env)
        await topics.start()
        ready = asyncio.Event()
        engine = Engine(self._handle, settings=settings, on_ready=lambda _: ready.set())
        dead = await self._watch_dead(flags["nats"])
        async with engine:
            running = asyncio.create_task(engine.run())
            self._say(f"a node takes over {engine.facts.partitions if engine.facts else 0} partitions ...")
            await asyncio.wait({running, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
            try:
                for project in self._projects:
                    await topics.wait_for(project, 30)
                async with Producer(settings=settings, topics=topics, facts=engine.facts) as producer:
                    await self._load(producer)
            finally:
                engine.stop()
                await running
                await dead.close()
                await topics.close()
                await coordination.close()

    async def _make_topics(self, coordination: EtcdCoordination) -> None:
        value = msgspec.json.encode(_TOPIC)
        writes = [Write(names.key("online", "topics", project), value) for project in self._projects]
        for start in range(0, len(writes), _KEYS_AT_ONCE):
            await coordination.txn([], writes[start : start + _KEYS_AT_ONCE])

    async def _watch_dead(self, url: str) -> Any:
        """A plain NATS client, none of our code, listens to the dead letters as they are put."""
        client = await nats.connect(url)

        async def note(message: Msg) -> None:
            own = (message.headers or {})[h.ID].split(":", 1)[1]
            self._ledger.dead.add(own.rsplit(":", 4)[0])

        await client.subscribe("dead.online.*", cb=note)
        return client

    async def _handle(self, message: Message) -> None:
        ledger = self._ledger
        ledger.attempts += 1
        if _fails(message.id, message.attempt):
            ledger.failed += 1
            raise RuntimeError("one attempt in twenty fails")
        ledger.handled[message.id] += 1
        ledger.by_priority[message.priority] += 1

    # ---- load and progress

    async def _load(self, producer: Producer) -> None:
        start = monotonic()
        number = 0
        with Live(self._table(0), console=self._console, refresh_per_second=8, transient=True) as live:
            while (elapsed := monotonic() - start) < self._seconds:
                goal = int(elapsed * self._rate)
                await self._put(producer, range(number, goal))
                number = goal
                live.update(self._table(elapsed))
                await asyncio.sleep(_BATCH_S)
            patience = monotonic() + _PATIENCE_S
            while self._ledger.open > 0 and monotonic() < patience:
                await asyncio.sleep(_BATCH_S)
                live.update(self._table(monotonic() - start))

    async def _put(self, producer: Producer, numbers: range) -> None:
        priorities = ("high", "mid", "low")
        puts = [
            Put(self._projects[n % len(self._projects)], b"%d" % n, priority=priorities[n % 3], id=f"m{n}")
            for n in numbers
        ]
        for put, outcome in zip(puts, await producer.put_many(puts), strict=True):
            if isinstance(outcome, Exception):
                self._refused += 1
                self._say(str(outcome))
            else:
                self._ledger.put.add(str(put.id))

    def _say(self, text: str) -> None:
        if self._live:
            self._console.print(text, highlight=False)

    def _table(self, elapsed: float) -> Table:
        ledger = self._ledger
        table = Table(title=f"{len(self._projects)} projects, {elapsed:.0f} s", title_justify="left")
        for column in ("put", "handled", "high", "mid", "low", "failed attempts", "dead letters", "open"):
            table.add_column(column, justify="right")
        counts = [ledger.by_priority[name] for name in ("high", "mid", "low")]
        cells = [len(ledger.put), len(ledger.handled), *counts, ledger.failed, len(ledger.dead), ledger.open]
        table.add_row(*(f"{cell:,}" for cell in cells))
        return table

    def _closing(self, sums: dict[str, int]) -> Table:
        table = Table(title="The ledger: every message that was acknowledged", title_justify="left")
        table.add_column("")
        table.add_column("messages", justify="right")
        rows = {
            "put, and acknowledged by NATS": sums["put"],
            "handled": sums["handled"],
            "in the dead letters, after 3 attempts": sums["dead"],
            "handled more than once": sums["duplicates"],
            "lost": sums["lost"],
        }
        for label, count in rows.items():
            table.add_row(label, f"{count:,}")
        table.caption = f"{self._ledger.attempts:,} attempts, {self._ledger.failed:,} of them failed"
        sys.stderr.flush()
        return table


def _fails(message: str, attempt: int) -> bool:
    """One attempt in twenty, the same ones in each run."""
    return int.from_bytes(sha256(f"{message}/{attempt}".encode()).digest()[:4], "big") % _FAILS == 0
