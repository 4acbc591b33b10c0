"""The handler of `benchmarks.failover`, which writes one line for each message."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message

VARIABLE = "FAILOVER_HANDLED"


@cache
def _file() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


async def handle(message: Message) -> None:
    """Append a line with a single write, which the kernel does completely or not at all."""
    partition = message.stream.rpartition("_")[2]
    os.write(_file(), f"{now_ns()} {os.getpid()} {partition} {message.epoch} {message.id}\n".encode())
