"""Carries out one task: reads its ranges or files, and builds rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.admin.export.messages import build_rows, dead, lane_of
from evenlane.spark import schemas
from evenlane.spark.source import archive, messages, meter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from evenlane.engine.core.export_port import Range
    from evenlane.engine.core.ports import Stored
    from evenlane.spark.source.options import Options
    from evenlane.spark.source.plan import Task


def rows(options: Options, task: Task, *, settled: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield a task's rows. `settled` includes messages of lanes that have been handled. Raises
    EvenlaneError, Unreachable.
    """
    for path in task.files:
        yield from archive.batches(path, options.span)
    if not task.ranges:
        return
    with StreamReader(options.settings) as server:
        if options.what == "meter":
            yield from meter.batches(_read_stored(server, task))
        elif options.what == "dead":
            yield from messages.batches(_dead(server, options, task), schemas.DEAD)
        else:
            yield from messages.batches(_read_waiting(server, options, task, settled=settled), schemas.LANES)


def _read_stored(server: StreamReader, task: Task) -> Iterator[list[Stored]]:
    for wanted in task.ranges:
        for page in server.read(wanted):
            yield [each.stored for each in page]


def _dead(server: StreamReader, options: Options, task: Task) -> Iterator[tuple[Any, ...]]:
    for wanted in task.ranges:
        for page in server.read(wanted):
            yield from dead(page, options.settings.cluster, bodies=options.payload)


def _read_waiting(server: StreamReader, options: Options, task: Task, *, settled: bool) -> Iterator[tuple[Any, ...]]:
    env = options.settings.env
    for wanted in task.ranges:
        lane = lane_of(wanted.stream, env)
        assert lane is not None
        view = None if settled else server.view(lane)
        # messages below the watermark are removed, or about to be
        for page in server.read(wanted if view is None else _above(wanted, view.settled.watermark)):
            yield from build_rows(page, lane, view, env, bodies=options.payload)


def _above(wanted: Range, watermark: int) -> Range:
    return wanted._replace(first=max(wanted.first, watermark + 1))
