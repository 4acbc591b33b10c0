"""A customer's endpoint whose behaviour the test sets, and messages to push there."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from evenlane.engine.base.clock import now_ns
from evenlane.quota.topics.fields import FIELDS

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]  # lower-case names
    body: bytes
    peer: Any  # a connection's address


class Receiver:
    """Answers with `status`, `headers` and `body`, or as `behaviour` does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[Seen] = []
        self.status, self.body = 200, b"ok"
        self.headers: dict[str, str] = {}
        self.behaviour: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        peer = request.transport.get_extra_info("peername") if request.transport else None
        self.seen.append(Seen(request.method, request.raw_path, headers, await request.read(), peer))
        if self.behaviour is not None:
            return await self.behaviour(request)
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    receiver = Receiver("")
    runner = web.AppRunner(app_of(receiver), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0, ssl_context=tls).start()
        port = runner.addresses[0][1]
        receiver.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield receiver
    finally:
        await runner.cleanup()


def app_of(receiver: Receiver) -> web.Application:
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", receiver.serve)
    return app


@dataclass
class FakeMessage:
    """The part of a message that the pusher reads."""

    queue: Any
    project: str = "acme"
    id: str = "order-17"
    body: bytes = b'{"a": 1}'
    headers: dict[str, str] = field(default_factory=dict)
    attempt: int = 1
    alive_at: int = 0

    def in_progress(self) -> None:
        self.alive_at = now_ns()


def message(url: str, *, push: dict[str, Any] | None = None, **fields: Any) -> Any:
    settings = FIELDS["push"]("push", {"url": url, **(push or {})})
    return FakeMessage(SimpleNamespace(rules=SimpleNamespace(topic=SimpleNamespace(push=settings))), **fields)
