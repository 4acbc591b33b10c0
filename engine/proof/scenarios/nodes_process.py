"""A node of a scenario over several nodes, as a process: an engine of the product, an arm's scheduler, and a handler
that sleeps for as long as the message says and writes down when it began and when it ended.

Each record is one write to the file that `BENCH_RECORDS` names: what was written outlives a kill.
"""

from __future__ import annotations

import asyncio
import os
from struct import Struct
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from evenlane.engine.base.clock import now_ns
from evenlane.engine.proof.scenarios.cluster_records import VARIABLE
from evenlane.engine.proof.scenarios.schedulers import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.quota.topics.topic import Topic

RECORD = Struct("<q?q")  # the message's number in the load, whether it began (else it ended), ns since boot
_SECOND = 1e9


class Handler:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def __call__(self, message: Message) -> None:
        number, _, service = message.body.partition(b" ")
        os.write(self._file, RECORD.pack(int(number), True, now_ns()))
        await asyncio.sleep(int(service) / _SECOND)
        os.write(self._file, RECORD.pack(int(number), False, now_ns()))


class Whole:
    """A control: gives a node `nodes` times its part of each quota. It takes the place of a scheduler."""

    def __init__(self, scheduler: Scheduler[Any], nodes: int) -> None:
        self._scheduler, self._nodes = scheduler, nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        more = None if topic is None else replace(topic, qps=topic.qps * self._nodes)
        self._scheduler.configure(project, more, now, whole)


def scheduler_of(name: str, whole_of: int) -> Callable[[int], Any]:
    """What makes the scheduler of this name; `whole_of` nodes each give the whole quota, 0: each its part."""
    from evenlane.engine.proof.scenarios.broker import head_at  # noqa: PLC0415 - it needs the broker's client

    def made(slots: int) -> Any:
        scheduler: Scheduler[Queue] = BY_NAME[name](slots, head_at)
        return Whole(scheduler, whole_of) if whole_of else scheduler

    return made


def main(name: str, whole_of: int, *, shares: bool) -> None:
    """Until SIGTERM; prints a line on stdout once it serves."""
    from evenlane.engine.base.log_setup import setup  # noqa: PLC0415
    from evenlane.engine.runtime.engine import Engine  # noqa: PLC0415
    from evenlane.engine.runtime.run_loop import run_loop  # noqa: PLC0415
    from evenlane.engine.runtime.serve import serve  # noqa: PLC0415

    setup("json", "info")
    told: list[int] = []

    def ready(partitions: int, _generation: int) -> None:
        if not told:
            print("ready", flush=True)  # noqa: T201
        told.append(partitions)

    handler = Handler(os.environ[VARIABLE])
    run_loop(serve(Engine(handler, on_ready=ready, shares=shares, scheduler=scheduler_of(name, whole_of))))
