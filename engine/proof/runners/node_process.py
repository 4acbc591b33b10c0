"""A node of a scenario over several nodes, as a process: an engine of the product with the scheduler of an arm.

Its handler sleeps for as long as the message says. It writes a record when it begins and one when it ends, each with
one write to the file that `BENCH_RECORDS` names, so that a record outlives a kill.
"""

from __future__ import annotations

import asyncio
import os
from struct import Struct
from typing import TYPE_CHECKING, Any

from evenlane.engine.base.clock import now_ns
from evenlane.engine.proof.arms import SCHEDULERS
from evenlane.engine.proof.baselines.schedulers import WholeQuota, stored_at
from evenlane.engine.proof.cluster.node_program import run_node
from evenlane.engine.proof.cluster.records import VARIABLE

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message

RECORD = Struct("<q?q")  # the message's number in the load, whether it began (else it ended), ns since boot
_SECOND = 1e9


class SleepingHandler:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def __call__(self, message: Message) -> None:
        number, _, service = message.body.partition(b" ")
        os.write(self._file, RECORD.pack(int(number), True, now_ns()))
        await asyncio.sleep(int(service) / _SECOND)
        os.write(self._file, RECORD.pack(int(number), False, now_ns()))


def main(scheduler: str, whole_of: int, *, shares: bool) -> None:
    """Run until SIGTERM; `whole_of` nodes each give the whole quota, 0: each its part."""

    def made(slots: int) -> Any:
        own = SCHEDULERS[scheduler](slots, stored_at)
        return WholeQuota(own, whole_of) if whole_of else own

    run_node(SleepingHandler(os.environ[VARIABLE]), shares=shares, scheduler=made)
