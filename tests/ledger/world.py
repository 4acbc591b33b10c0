"""The world of a ledger test: real servers, nodes as processes, topics, a producer, and the ledger."""

from bisect import insort
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import msgspec

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings, load
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.pair import Servers
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import PutKey as Write
from evenlane.ring.membership.records import NodeRecord, decode
from tests.ledger import entries
from tests.ledger.dead import DeadLetters
from tests.ledger.entries import Entry
from tests.ledger.process import NodeProcess
from tests.support.until import until

TOPIC = {"qps": 100_000, "max_attempts": 3, "backoff": {"base": 0.2, "factor": 1, "jitter": 0}}
# Few partitions, since their streams take time to create. One group of a topic may have all of its rate.
SETTINGS = {"partitions": 8, "group_qps": 100_000, "max_group_qps": 100_000}
_KEYS_AT_ONCE = 100


class ProcessWorld:
    """`async with ProcessWorld(folder) as world:` starts both servers.

    `settings` are for all processes. With `servers`, it uses those, which run already. `acknowledged`: id of each
    acknowledged put -> stream and sequence.
    """

    def __init__(
        self, folder: Path, *, nats_config: str = "", servers: Servers | None = None, **settings: object
    ) -> None:
        self.folder = folder
        self._has_own_servers = servers is None
        self.servers = servers or Servers(folder / "servers", fast=True, nats_config=nats_config)
        self._defaults = SETTINGS | settings
        self._open = AsyncExitStack()
        self.nodes: list[NodeProcess] = []
        self.acknowledged: dict[str, tuple[str, int]] = {}
        self.refused: list[Exception] = []
        self._entries: list[Entry] = []
        self._read = 0
        # From `_entries`, so that conditions that are asked often look at the new ones only:
        self._handled: set[str] = set()  # the ids of messages that some handler ended well
        self._of: defaultdict[str, list[Entry]] = defaultdict(list)  # by project
        self._begins: defaultdict[str, list[Entry]] = defaultdict(list)  # by project, in the order of time

    async def __aenter__(self) -> Self:
        if self._has_own_servers:
            (self.folder / "servers").mkdir()
            await self.servers.start()
            self._open.push_async_callback(self.servers.stop)
        self.settings = self._settings()
        self.etcd = EtcdCoordination(self.settings.etcd)
        self._open.push_async_callback(self.etcd.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.running:
                await node.kill()
        for server in (self.servers.nats, self.servers.etcd):
            if not server.is_running:  # clients can't close without their server
                await server.start()
        await self._open.aclose()

    @property
    def node_settings(self) -> dict[str, object]:
        """The settings of all nodes."""
        return dict(self._defaults)

    def _settings(self) -> Settings:
        given = {"nats": self.servers.nats.url, "etcd": self.servers.etcd.endpoint} | self._defaults
        return load({key: str(value) for key, value in given.items()}, environ={}).settings

    async def node(self, handler: str = "obey", *, name: str = "node-a", **settings: object) -> NodeProcess:
        """Start a node, and wait until it serves."""
        node = self.add_node(handler, name=name, **settings)
        await node.start()
        return node

    def add_node(self, handler: str = "obey", *, name: str = "node-a", **settings: object) -> NodeProcess:
        """A node that isn't started yet."""
        node = NodeProcess(self.servers, self.folder, handler, name=name, **(self._defaults | settings))
        self.nodes.append(node)
        return node

    def twin(self, handler: str = "obey", *, log: str, **settings: object) -> NodeProcess:
        """A node under the id of the first, not started yet, with a log of its own."""
        return self.add_node(handler, name=log, **({"node": "node-a"} | settings))

    async def address(self, node: str = "node-a") -> str | None:
        """The HTTP address in a node's record in etcd; None if it serves none."""
        found = await self.etcd.get(names.key(self.settings.env, "nodes", node))
        assert found is not None, f"{node} has no record"
        return decode(NodeRecord, "nodes", found.value).http

    async def topics(self, *projects: str, **fields: object) -> None:
        """Make topics, and wait until a node has accepted them."""
        value = msgspec.json.encode(TOPIC | fields)
        writes = [Write(names.key(self.settings.env, "topics", project), value) for project in projects]
        for start in range(0, len(writes), _KEYS_AT_ONCE):
            await self.etcd.txn([], writes[start : start + _KEYS_AT_ONCE])
        topic_cache = TopicCache(self.etcd, self.settings.env)
        await topic_cache.start()
        state = fields.get("state", "active")

        def accepted() -> bool:
            return all((known := topic_cache.get(each)) and known.topic.state == state for each in projects)

        await until(accepted, 30, "the topics to be accepted")
        await topic_cache.close()

    async def producer(self) -> Producer:
        producer = Producer(settings=self.settings)
        await self._open.enter_async_context(producer)
        return producer

    async def put(self, producer: Producer, puts: list[Put]) -> None:
        """Put all, and note which were acknowledged."""
        for put, outcome in zip(puts, await producer.put_many(puts), strict=True):
            if isinstance(outcome, Exception):
                self.refused.append(outcome)
            else:
                self.acknowledged[str(put.id)] = (outcome.stream, outcome.sequence)

    async def dead_letters(self) -> DeadLetters:
        return await self._open.enter_async_context(DeadLetters(self.servers.nats.url, self.settings.env))

    def entries(self) -> list[Entry]:
        """The handlers' ledger so far."""
        fresh, self._read = entries.read_from(self.folder / "ledger", self._read)
        self._entries += fresh
        for entry in fresh:
            self._of[entry.project].append(entry)
            if entry.what == "ok":
                self._handled.add(entry.id)
            elif entry.what == "begin":
                insort(self._begins[entry.project], entry, key=lambda each: each.at)
        return self._entries

    def of(self, project: str) -> list[Entry]:
        """A project's entries so far."""
        self.entries()
        return self._of[project]

    def begins(self, project: str) -> list[Entry]:
        """A project's begins so far, in the order of their times."""
        self.entries()
        return self._begins[project]

    def ids(self, what: str = "ok") -> list[str]:
        """The ids of these entries, in order."""
        return [entry.id for entry in self.entries() if entry.what == what]

    async def handled(self, *ids: str, timeout: float = 60.0) -> None:
        """Wait until these messages are handled; without ids, all acknowledged ones."""
        left = list(ids or self.acknowledged)
        try:
            await until(lambda: not self._without_handled(left), timeout)
        except AssertionError:
            words = self.nodes[-1].last_words() if self.nodes else ""
            missing = sorted(set(left) - self._handled)
            raise AssertionError(f"{len(missing)} not handled: {missing[:5]}; the node: {words}") from None

    async def ended(self, dead: DeadLetters, timeout: float = 60.0) -> None:
        """Wait until all acknowledged messages are handled or dead."""
        left = list(self.acknowledged)

        async def all_ended() -> bool:
            while self._without_handled(left) and left[-1] in await dead.ids():
                left.pop()
            return not left

        await until(all_ended, timeout, "all to be handled or dead")

    def _without_handled(self, left: list[str]) -> list[str]:
        """Take the handled messages from the end of this list, up to the first other one."""
        self.entries()
        while left and left[-1] in self._handled:
            left.pop()
        return left

    async def api(self, verb: str, request: Any = None) -> dict[str, Any]:
        """Call JetStream's API with a plain client."""
        import nats

        client = await nats.connect(list(self.settings.nats_servers))
        try:
            body = b"" if request is None else msgspec.json.encode(request)
            reply = await client.request(f"$JS.API.{verb}", body, timeout=30)
            answer: dict[str, Any] = msgspec.json.decode(reply.data)
        finally:
            await client.close()
        assert "error" not in answer, answer["error"]
        return answer
