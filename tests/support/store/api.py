"""Requests to JetStream's API with a plain client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nats.aio.client import Client

_TIMEOUT_S = 30.0


async def ask(client: Client, verb: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer. Fails if it is an error."""
    reply = await client.request(f"$JS.API.{verb}", json.dumps(request).encode(), timeout=_TIMEOUT_S)
    answer: dict[str, Any] = json.loads(reply.data)
    assert "error" not in answer, answer
    return answer
