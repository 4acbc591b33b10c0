"""A TCP proxy on loopback between a client and a server, which can be cut, or speak TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable

from evenlane.engine.runtime.embedded.ports import free_port


class Proxy:
    """A proxy for `target` (HOST:PORT), which listens on `endpoint`; on any free port of loopback if none is given.

    `cut` ends all connections, and accepts no new ones. While `passing` is cleared, nothing goes through.
    `accepted` counts all connections; `open` has the numbers of those that the client keeps open.
    """

    def __init__(self, target: str, tls: ssl.SSLContext | None = None, endpoint: str | None = None) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._tls = tls
        self._server: asyncio.Server | None = None
        # Not one of those that the kernel gives to outgoing connections: while it is cut, none takes the port.
        host, _, port = (endpoint or f"127.0.0.1:{free_port()}").rpartition(":")
        self._own_host, self._own_port = host, int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.passing = asyncio.Event()
        self.passing.set()
        self.passed = 0  # bytes, both ways
        self.accepted = 0
        self.open: set[int] = set()

    @property
    def endpoint(self) -> str:
        return f"{self._own_host}:{self._own_port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._own_host, self._own_port, ssl=self._tls)

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
        self.passing.set()
        for writer in self._writers:
            with contextlib.suppress(AttributeError):  # Python 3.11's TLS, if closed twice
                writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            self._writers |= {writer, far_writer}
            self.accepted += 1
            self.open.add(self.accepted)
            for source, sink in ((reader, far_writer), (far_reader, writer)):
                task = asyncio.create_task(self._pass(source, sink))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                if source is reader:
                    task.add_done_callback(lambda _, number=self.accepted: self.open.discard(number))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await source.read(65_536):
                await self.passing.wait()
                self.passed += len(part)
                sink.write(part)
                await sink.drain()
        sink.close()


def cut_off(proxy: Proxy, how: str) -> Awaitable[None]:
    """`closed`: connections end, and no new one is accepted. `silent`: they stay open, and nothing passes."""
    if how == "closed":
        return proxy.cut()
    proxy.passing.clear()
    return asyncio.sleep(0)


async def heal(proxy: Proxy, how: str) -> None:
    """Let connections through again."""
    if how == "closed":
        await proxy.start()
    proxy.passing.set()
