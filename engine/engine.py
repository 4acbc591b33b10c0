"""A node as a process: connections, membership, topics, and the node that does the work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import structlog

from engine import clients
from engine.acceptor import Acceptor
from engine.answering import Answering
from engine.errors import EvenlaneError, Fenced, Unreachable
from engine.facts import agree
from engine.index import Limits
from engine.names import Kind, LaneId
from engine.node import Node
from engine.node.handlers import Handler
from engine.ownership import Ownership
from engine.settings import CLUSTER_FACTS, Settings, load
from engine.topics import TopicBook

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.clients import Connect
    from engine.facts import Facts
    from quota.topic import Accepted, Topic

_log = structlog.get_logger(__name__)

_PAUSE_S = 1.0


class Engine:
    """Runs a handler on the messages of an environment.

    `async with Engine(handle, nats=..., etcd=...) as engine: await engine.run()`; what is left out comes from the
    settings. `on_ready(partitions)` is called when it serves (all partitions) or stands by (0).
    """

    def __init__(
        self,
        handler: Callable[[Any], Any],
        *,
        settings: Settings | None = None,
        on_ready: Callable[[int], None] | None = None,
        connect: Connect | None = None,
        **flags: Any,
    ) -> None:
        given = {name: value for name, value in flags.items() if value is not None}
        self.settings = settings or load(given).settings
        self.id = self.settings.node_id()
        self._handler = Handler.of(handler)
        self._on_ready = on_ready or (lambda _partitions: None)
        self._connect = connect or clients.Connect()
        self._coordination = self._connect.etcd(self.settings)
        self._stop = asyncio.Event()
        self._broken = ""
        self._has_joined = False
        self._book: TopicBook | None = None
        self._acceptor: Acceptor | None = None
        self.facts: Facts | None = None
        self.node: Node | None = None

    async def __aenter__(self) -> Self:
        """Reach etcd and agree on the cluster's facts. Raises Unreachable, ConfigError."""
        settings = self.settings
        wanted = {name: getattr(settings, name) for name in CLUSTER_FACTS}
        with clients.explained():
            self.facts = await agree(
                self._coordination, settings.env, {k: v for k, v in wanted.items() if v is not None}
            )
            self._book = TopicBook(self._coordination, settings.env)
            self._book.on_change.append(self._topic_changed)
            await self._book.start()
            self._acceptor = Acceptor(self._coordination, settings.env, self.facts, self.id)
            await self._acceptor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for part in (self._acceptor, self._book, self._coordination):
            if part is not None:
                await part.close()

    async def prepare(self) -> None:
        """Make the streams, so that plain clients can put before any node or producer has run."""
        store = self._connect.store(self.settings, self.id)
        with clients.explained():
            await store.open()
            try:
                await store.prepare(self._lanes())
            finally:
                await store.close()

    def _lanes(self) -> list[LaneId]:
        assert self.facts is not None
        kinds: tuple[Kind, Kind] = ("lanes", "later")
        return [LaneId(kind, p) for kind in kinds for p in range(self.facts.partitions)]

    def stop(self) -> None:
        """End `run` after a drain."""
        self._stop.set()

    async def run(self) -> bool:
        """Serve until `stop`; True if everything begun was ended and settled.

        A lost lease ends the term; the node then joins anew. Raises EvenlaneError for what it can't go on after.
        """
        clean = True
        while True:
            try:
                clean = await self._term()
            except Unreachable as error:
                if not self._has_joined:
                    raise
                self._broken = str(error)
            if self._stop.is_set():
                return clean
            _log.warning("joining anew", because=self._broken)
            await asyncio.sleep(_PAUSE_S)

    async def _term(self) -> bool:
        """From joining to the loss of the lease or to `stop`."""
        assert self.facts is not None
        settings, ended = self.settings, asyncio.Event()
        self._broken = ""
        fatal: list[str] = []

        def lost(reason: str) -> None:
            self._broken = reason
            if self.node is not None:
                self.node.trusted_until = 0
            ended.set()

        def fail(reason: str) -> None:
            fatal.append(reason)
            ended.set()

        def trust(until: int) -> None:
            if self.node is not None:
                self.node.trust(until)

        store = self._connect.store(settings, self.id, feeds=True)
        ownership = Ownership(self._coordination, settings.env, self.id, int(settings.lease_ttl), trust, lost)
        clean = True
        with clients.explained():
            await store.open()
            try:
                await store.prepare(self._lanes())
                await ownership.join()
                self._has_joined = True
                node = Node(
                    store, self.facts, self._handler, self._topic, env=settings.env, node_id=self.id,
                    concurrency=settings.concurrency, settle_interval=settings.settle_interval, on_stop=fail,
                    limits=Limits(settings.payload_budget, settings.read_ahead, settings.index_limit),
                )  # fmt: skip
                answering = Answering(self._connect.questions(settings, f"{self.id} answers"), settings.env, node)
                try:
                    await answering.open()
                    trusted = await self._serve(node, ownership, ended)
                    if trusted:
                        _log.info("draining", grace=settings.drain_grace)
                finally:  # whatever happened, nothing of it goes on when the partitions are given back
                    clean = await node.stop(_of_grace(settings.drain_grace) if self._stop.is_set() else 2.0)
                    _log.info("node stopped", clean=clean, **vars(node.counters))
                    await answering.close()
            finally:
                self.node = None
                await ownership.release()
                await store.close()
        if fatal:
            raise EvenlaneError(f"node {self.id} stops: {fatal[0]}")
        return clean

    async def _serve(self, node: Node, ownership: Ownership, ended: asyncio.Event) -> bool:
        """Take the partitions over and work until the end of the term; whether the lease still holds then."""
        assert self.facts is not None
        stopping = asyncio.create_task(self._stop.wait())
        ending = asyncio.create_task(ended.wait())
        taking = asyncio.create_task(self._take_over(node, ownership))
        try:
            await asyncio.wait({taking, stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                taking.result()
                await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stopping, ending, taking):
                task.cancel()
            await asyncio.gather(stopping, ending, taking, return_exceptions=True)
        return not ended.is_set()

    async def _take_over(self, node: Node, ownership: Ownership) -> None:
        assert self.facts is not None

        def standby() -> None:
            _log.info("standing by: another node owns the partitions", node=self.id)
            self._on_ready(0)

        shares = await ownership.acquire(self.facts.partitions, standby)
        self.node = node
        node.trusted_until = ownership.trusted_until
        await node.start()
        try:
            for share in shares:
                await node.take_over(share.partitions, share.epoch)
        except Fenced as error:
            raise EvenlaneError(f"node {self.id} stops: {error}") from error
        _log.info("serving", node=self.id, partitions=self.facts.partitions, backlog=node.backlog)
        self._on_ready(self.facts.partitions)

    def _topic(self, project: str) -> Topic | None:
        found = self._book.get(project) if self._book is not None else None
        return found.topic if found is not None else None

    def _topic_changed(self, project: str, accepted: Accepted | None) -> None:
        if self.node is not None:
            self.node.topic_changed(project, accepted.topic if accepted is not None else None)


def _of_grace(grace: float) -> float:
    """The node's part of the time a drain may take: releasing in etcd needs some, too."""
    return max(grace / 2, grace - 5.0)
