"""Removes messages from streams: all below a sequence, or a single one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.store.jetstream.api.responses import await_call, was_gone
from evenlane.engine.store.jetstream.api.values import StreamInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.store.jetstream.client.connection import Connection
    from evenlane.engine.store.jetstream.reads import Reads


async def purge(connection: Connection, reads: Reads, stream: str, below: int, may: Callable[[], bool]) -> None:
    """Remove all messages with a sequence below `below`. Raises Lost, also if it may not any more; Refused."""
    if below <= 1:
        return  # the server takes a sequence of 0 for "all"
    bound = await _purge_bound(connection, reads, stream, below)
    if not may():
        raise Lost(f"{stream} isn't purged: the lease isn't trusted any more")
    await await_call(connection.api(f"STREAM.PURGE.{stream}", {"seq": bound}, timeout=30))


async def _purge_bound(connection: Connection, reads: Reads, stream: str, below: int) -> int:
    """The sequence of the first message from `below` on, or of the next to arrive. A purge up to a deleted message
    makes nats-server 2.15 miscount, and lose the remaining messages once it counts none (docs/adr/0016).
    """
    # (in this order: a message put in between is found by the second request, or comes after the first's last sequence)
    info = await await_call(connection.api_as(StreamInfo, f"STREAM.INFO.{stream}"))
    found = await reads.message(stream, {"seq": below, "next_by_subj": ">"})
    return found.sequence if found is not None else info.state.last_seq + 1


async def delete(connection: Connection, stream: str, sequence: int) -> None:
    """Remove one message, without erasing its bytes, which would be 15 times slower. Raises Lost, Refused."""
    request = {"seq": sequence, "no_erase": True}
    try:
        await await_call(connection.api(f"STREAM.MSG.DELETE.{stream}", request, timeout=30))
    except Refused as error:
        if not was_gone(error.__cause__):
            raise
