"""Stream reader for `spark.readStream.format("evenlane")`: new messages, micro-batch by micro-batch.

An offset has, for each stream, its creation time and the last sequence read. A stream that was deleted and recreated is
read from its first message, as nothing of it was read before. For lanes, the stream has all messages put, handled or
not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.core.export_port import Range
from evenlane.spark.source.plan import Task, tasks
from evenlane.spark.source.ranges import needs_bodies, present
from evenlane.spark.source.reading import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from evenlane.engine.core.export_port import Stream
    from evenlane.spark.source.options import Options

Offset = dict[str, list[Any]]
"""By stream: its creation time, and the last sequence read."""


class EvenlaneStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of a stream."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Offset | None = None  # the end, with the trigger available-now

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names, here and below
        since = self._options.span.since
        with StreamReader(self._options.settings) as server:
            return {
                each.name: [
                    each.created,
                    each.first - 1 if since is None else max(each.first, server.sequence_at(each.name, since)) - 1,
                ]
                for each in present(server, self._options)
            }

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._now()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        latest = self._target or self._now()
        return advance(start, latest, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return self._now()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with StreamReader(self._options.settings) as server:
            there = {name: stream.created for name in end if (stream := server.stream(name)) is not None}
        wanted = [
            Range(name, read_from(start, name, created), last, (), needs_bodies(self._options))
            for name, (created, last) in sorted(end.items())
            if there.get(name) == created  # otherwise a repeated batch could have messages of a recreated stream
        ]
        return tasks(wanted, self._options.partitions) or [Task()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return rows(self._options, partition, settled=True)

    def commit(self, end: Offset) -> None:
        """Do nothing: messages stay in the stream for others."""

    def _now(self) -> Offset:
        with StreamReader(self._options.settings) as server:
            return offset(present(server, self._options))


def offset(streams: Sequence[Stream]) -> Offset:
    """Return the offset after all messages."""
    return {each.name: [each.created, each.last] for each in streams}


def read_from(start: Offset, name: str, created: str) -> int:
    """Return the first unread sequence of a stream."""
    before = start.get(name)
    return before[1] + 1 if before is not None and before[0] == created else 1


def advance(start: Offset, latest: Offset, most: int | None) -> Offset:
    """Advance from `start` towards `latest`, by at most `most` messages, distributed by the streams' remaining
    messages. Deleted streams keep their offset, as they may return.
    """
    left = {name: last - read_from(start, name, created) + 1 for name, (created, last) in latest.items()}
    total = sum(left.values())
    if most is None or total <= most:
        return {**start, **latest}
    found: Offset = {**start}
    ahead = given = 0
    for name, (created, last) in sorted(latest.items()):
        ahead += left[name]
        step = ahead * most // total - given  # what rounding takes from one stream goes to the next ones
        given += step
        found[name] = [created, last - left[name] + step]
    return found
