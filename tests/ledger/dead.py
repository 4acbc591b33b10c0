"""The dead letters, read with a plain NATS client and nothing of ours."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Self

import nats
from nats.js import JetStreamContext

if TYPE_CHECKING:
    from nats.aio.client import Client


class Dead(NamedTuple):
    """`project` is the word in its subject."""

    project: str
    id: str
    reason: str
    attempts: int
    subject: str
    headers: dict[str, str]
    body: bytes


class DeadLetters:
    """`async with DeadLetters(url) as dead: await dead.read()`."""

    def __init__(self, url: str, env: str = "online") -> None:
        self._url, self._stream = url, f"DEAD_{env}"
        self._client: Client | None = None
        self._all: list[Dead] = []
        self._next = 1

    async def __aenter__(self) -> Self:
        self._client = await nats.connect(self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def read(self) -> list[Dead]:
        """All so far; those that were read before aren't asked for again."""
        assert self._client is not None
        stream = self._client.jetstream()
        last = (await stream.stream_info(self._stream)).state.last_seq
        wanted = range(self._next, last + 1)
        for start in range(0, len(wanted), 100):
            part = wanted[start : start + 100]
            self._all += await asyncio.gather(*(self._one(stream, sequence) for sequence in part))
        self._next = last + 1
        return self._all

    async def ids(self) -> set[str]:
        return {dead.id for dead in await self.read()}

    async def _one(self, stream: JetStreamContext, sequence: int) -> Dead:
        found = await stream.get_msg(self._stream, sequence)
        headers = found.headers or {}
        # <project>:<id>:<stream>:<sequence>:<attempt>:dead
        own = headers["Nats-Msg-Id"].split(":", 1)[1].rsplit(":", 4)[0]
        return Dead(
            (found.subject or "").rpartition(".")[2], own, headers.get("Evenlane-Reason", ""),
            int(headers.get("Evenlane-Attempt", 0)), headers.get("Evenlane-Subject", ""), headers,
            found.data or b"",
        )  # fmt: skip
