"""The program of a cluster's nodes: a handler that writes a record at its start and end. The node may differ from the
product.

Each record is one write to a file, so kill -9 loses none: the kernel already has it.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.log_setup import setup
from evenlane.engine.core.wire import headers as h
from evenlane.engine.proof.cluster.records import HELD, SERVICE, SERVICE_S, VARIABLE, HandlerRecord, pack_record
from evenlane.engine.runtime.engine import Engine
from evenlane.engine.runtime.run_loop import run_loop
from evenlane.engine.runtime.serve import serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.core.message.message import Message

_SERVICE_S = float(os.environ.get(SERVICE, SERVICE_S))
_SECOND = 1e9
_files: list[int] = []  # opened by the first message


async def handle(message: Message) -> None:
    """Handle a message whose body is a number, or `HELD`, optionally followed by the handler's duration in ns."""
    number, _, service = message.body.partition(b" ")
    begin = HandlerRecord(
        now_ns(), message.put_ns, message.sequence, message.epoch, message.partition, message.attempt,
        message.queue.band, True, message.lane.id.kind, number == HELD, message.project, message.node,
        h.number(message.raw_headers, h.DUE, 0), int(number) if number.isdigit() else 0,
    )  # fmt: skip
    _write(begin)
    await asyncio.sleep(int(service) / _SECOND if service else _SERVICE_S)
    _write(begin._replace(at=now_ns(), began=False))


def _write(record: HandlerRecord) -> None:
    if not _files:
        _files.append(os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    os.write(_files[0], pack_record(record))


def run_node(handle: Callable[[Message], Awaitable[None]], **parts: Any) -> None:
    """Run an engine with these `parts` until SIGTERM; print a line on stdout each time it has carried out a plan."""

    def on_ready(partitions: int, generation: int) -> None:
        print(f"ready partitions={partitions} generation={generation}", flush=True)  # noqa: T201

    setup("json", "info")
    run_loop(serve(Engine(handle, on_ready=on_ready, **parts)))
