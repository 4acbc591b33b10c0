"""Dead letters, read with a plain NATS client and none of Evenlane's code."""

import asyncio
import json
from base64 import b64decode
from typing import TYPE_CHECKING, NamedTuple, Self

import nats

if TYPE_CHECKING:
    from nats.aio.client import Client

_ANSWER_S = 30.0  # the machine may be busy, and nats-py's own limit is 0.5 s


class Dead(NamedTuple):
    """A dead letter. `project` is the word in its subject."""

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
        self._client = await nats.connect(self._url.split(","), max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def read(self) -> list[Dead]:
        """All dead letters so far. Each is read only once."""
        assert self._client is not None
        last = (await self._client.jetstream(timeout=_ANSWER_S).stream_info(self._stream)).state.last_seq
        fresh = range(self._next, last + 1)
        for start in range(0, len(fresh), 100):
            part = fresh[start : start + 100]
            found = await asyncio.gather(*(self._one(sequence) for sequence in part))
            self._all += [dead for dead in found if dead is not None]
        self._next = last + 1
        return self._all

    async def ids(self) -> set[str]:
        return {dead.id for dead in await self.read()}

    async def _one(self, sequence: int) -> Dead | None:
        assert self._client is not None
        question = json.dumps({"seq": sequence}).encode()
        answer = await self._client.request(f"$JS.API.STREAM.MSG.GET.{self._stream}", question, timeout=_ANSWER_S)
        if (found := json.loads(answer.data).get("message")) is None:
            return None  # replayed, or dropped
        lines = b64decode(found["hdrs"]).decode().split("\r\n")[1:]
        headers = dict(line.split(": ", 1) for line in lines if line)
        # <project>:<id>:<stream>:<sequence>:<attempt>:dead
        own = headers["Nats-Msg-Id"].split(":", 1)[1].rsplit(":", 4)[0]
        return Dead(
            found["subject"].rpartition(".")[2], own, headers.get("Evenlane-Reason", ""),
            int(headers.get("Evenlane-Attempt", 0)), headers.get("Evenlane-Subject", ""), headers,
            b64decode(found.get("data", "")),
        )  # fmt: skip
