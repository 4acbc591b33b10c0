"""A server on a free port with a node that says what the test wants, and a client."""

from contextlib import asynccontextmanager

import aiohttp

from engine.http.app import app
from engine.http.readiness import Readiness
from engine.http.server import HttpServer
from engine.metrics.exposition import Page


class FakeNode:
    """`fails` is raised by whatever is asked."""

    def __init__(self):
        self.fails = None
        self.not_ready = ""
        self.asked = []

    def health(self):
        self._fail()
        return {"node": "n"}

    async def readiness(self):
        return Readiness("n", 3, 7, self.not_ready)

    async def metrics(self, accept):
        return Page(f"# {accept}\n".encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def why(self, project, priority, within):
        self._fail()
        self.asked.append((project, priority, within))
        return {"project": project}

    def _fail(self):
        if self.fails is not None:
            raise self.fails


@asynccontextmanager
async def served(node=None, host="127.0.0.1"):
    """(get, node): `await get(path)` gives status, headers and text."""
    node = node or FakeNode()
    server = HttpServer(app(node), host, 0)
    await server.open()
    async with aiohttp.ClientSession() as client:

        async def get(path, method="GET", **headers):
            async with client.request(method, server.address + path, headers=headers) as response:
                return response.status, response.headers, await response.text()

        try:
            yield get, node
        finally:
            await server.close()
