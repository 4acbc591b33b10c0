"""Version 1 of the HTTP API on a store and an etcd in memory."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.http.app import app
from evenlane.engine.http.puts import PutService
from evenlane.engine.http.server.auth import AccessControl
from evenlane.engine.http.server.server import HttpServer
from evenlane.engine.http.topics import TopicService
from evenlane.ring.coordination.memory.client import MemoryCoordination
from tests.support.http.serving import TOKEN, FakeNode
from tests.support.producer_world import ProducerWorld

WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}
JSON = {"Content-Type": "application/json"}
MESSAGES = "/api/v1/projects/acme/messages"


class Answer(NamedTuple):
    status: int
    headers: Mapping
    document: dict


class ApiWorld(ProducerWorld):
    """A node whose producer puts into the memory, and whose topics are in `etcd`: they aren't those of the producer.
    `waiting` is the count of waiting messages of any project. `call` sends a request with the token.
    """

    @asynccontextmanager
    async def serve(self, *, token=TOKEN, idle_s=20.0, producer=None, **limits):
        self.etcd, self.waiting = MemoryCoordination(), 0
        self.node = FakeNode()
        self.node.puts = PutService(lambda: self.producer(**(producer or {})), "n", **limits)
        self.node.topics = TopicService(self.etcd, self.env, "http@n", self._count, timeout_s=0.05)
        self.app = app(self.node, AccessControl(lambda: token), body_idle_s=idle_s)
        server = HttpServer(self.app, "127.0.0.1", 0, self.node.puts.close)
        await self.store.open()
        await self.store.prepare([LaneId(kind, number) for kind in ("lanes", "later") for number in range(16)])
        await server.open()
        self.port = int(server.address.rpartition(":")[2])
        async with aiohttp.ClientSession(server.address) as self.client:
            try:
                yield self
            finally:
                await server.close()
                await self.store.close()

    async def call(self, method, path, body=None, **headers):
        """`body` is JSON; or bytes, at once or by and by, with a content type among `headers`, whose `_` are `-`."""
        named = WITH_TOKEN | {name.replace("_", "-").title(): value for name, value in headers.items()}
        if not isinstance(body, bytes | AsyncIterator | None):
            named, body = JSON | named, json.dumps(body).encode()
        async with self.client.request(method, path, headers=named, data=body) as response:
            return Answer(response.status, response.headers, await response.json())

    async def put_lines(self, text, **headers):
        return await self.call("POST", MESSAGES, text.encode(), content_type="application/x-ndjson", **headers)

    def head(self, kind, length, *more):
        """The head of a POST of messages, for a socket. Without a length, the body comes in chunks."""
        size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = [
            f"POST {MESSAGES} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {TOKEN}",
            f"Content-Type: {kind}", size, *more, "", "",
        ]  # fmt: skip
        return "\r\n".join(lines).encode()

    async def lead(self):
        """Have a leader that accepts nothing."""
        await self.etcd.put(names.key(self.env, "leader"), b"other")

    async def _count(self, _project):
        return self.waiting
