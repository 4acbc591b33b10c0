"""The handler of `rebalance`, `delay` and `live`, inside a node's process: writes down that it begins, takes its time,
and writes down that it ends.

Each record is one write to a file, so that kill -9 loses none: the kernel has it by then.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.wire import headers as h
from evenlane.engine.proof.scenarios.cluster_records import HELD, SERVICE, SERVICE_S, VARIABLE, Record, packed

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message

_SERVICE_S = float(os.environ.get(SERVICE, SERVICE_S))
_files: list[int] = []  # opened by the first message


async def handle(message: Message) -> None:
    held = message.body.startswith(HELD)
    begin = Record(
        now_ns(), message.put_ns, message.sequence, message.epoch, message.partition, message.attempt,
        message.queue.band, True, message.lane.id.kind, held, message.project, message.node,
        h.number(message.raw_headers, h.DUE, 0),
    )  # fmt: skip
    _write(begin)
    await asyncio.sleep(float(message.body.removeprefix(HELD)) if held else _SERVICE_S)
    _write(begin._replace(at=now_ns(), began=False))


def _write(record: Record) -> None:
    if not _files:
        _files.append(os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    os.write(_files[0], packed(record))
