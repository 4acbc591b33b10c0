"""Backups of streams by JetStream's API, as `nats stream backup` and `nats stream restore` make them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.store.api import ask

if TYPE_CHECKING:
    from nats.aio.client import Client

_CHUNK = 65_536


class StreamBackup:
    """A stream's configuration and state, and its data in chunks."""

    def __init__(self, name: str, described: dict[str, Any], chunks: list[bytes]) -> None:
        self.name, self._described, self._chunks = name, described, chunks

    @classmethod
    async def take(cls, client: Client, name: str) -> StreamBackup:
        inbox = client.new_inbox()
        data = await client.subscribe(inbox)
        question = {"deliver_subject": inbox, "no_consumers": True, "chunk_size": _CHUNK}
        described = await ask(client, f"STREAM.SNAPSHOT.{name}", question)
        chunks = []
        while chunk := (message := await data.next_msg(60)).data:
            chunks.append(chunk)
            if message.reply:
                await client.publish(message.reply, b"")
        await data.unsubscribe()
        return cls(name, {key: described[key] for key in ("config", "state")}, chunks)

    async def restore(self, client: Client) -> None:
        begun = await ask(client, f"STREAM.RESTORE.{self.name}", self._described)
        for chunk in [*self._chunks, b""]:
            answer = await client.request(begun["deliver_subject"], chunk, timeout=60)
        assert "error" not in json.loads(answer.data), answer.data
