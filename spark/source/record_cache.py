"""Keeps records that a report has read, as Parquet on this machine, so that the next report reads only newer ones.

A record never changes, and only the oldest ones leave the stream. Records are kept in blocks of consecutive sequences.
Each stream has a folder, whose name has the stream's creation and what rows depend on. A server that is restored from a
backup may store other records under the same sequences: the newest block is compared with the stream.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
import zlib
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import platformdirs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import evenlane
from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.base import names
from evenlane.engine.core.export_port import Range
from evenlane.spark.schemas import METER
from evenlane.spark.source import meter
from evenlane.spark.source.columns import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlane.engine.core.export_port import Stream
    from evenlane.spark.source.options import Options
    from evenlane.spark.source.plan import Task

BLOCK = 4_096
"""Number of sequences of a block."""
MOST_ROWS = 8 * BLOCK
"""A block with more rows isn't kept: such records take as long to read from Parquet as from the stream."""
_UNUSED_S = 30 * 86_400
_NEW, _WRITTEN_S = "_new-", 3_600
_SCHEMA = arrow_schema(METER)


def default_root() -> Path | None:
    """Return this user's folder for such files; None for a user without a home."""
    try:
        root = Path(platformdirs.user_cache_dir("evenlane", appauthor=False)) / "records"
    except RuntimeError:
        return None
    return root if root.is_absolute() else None


class RecordCache(NamedTuple):
    """The blocks of a stream. Block n has the sequences from n * BLOCK + 1 to (n + 1) * BLOCK.

    Invariant: a block's file has all of its sequences.
    """

    folder: Path

    def rows(self, options: Options, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows, and keep the blocks that the task has read from the stream. Raises EvenlaneError,
        Unreachable.
        """
        with contextlib.ExitStack() as stack:
            server: StreamReader | None = None
            for kept, parts in (group for each in task.ranges for group in self._group(each)):
                if kept:
                    yield from (batch for _, table in parts if table is not None for batch in table.to_batches())
                    continue
                if server is None:
                    server = stack.enter_context(StreamReader(options.settings))
                yield from self._read(server, _join([part for part, _ in parts]))

    def _group(self, wanted: Range) -> Iterator[tuple[bool, Iterator[tuple[Range, pa.Table | None]]]]:
        """Divide a range into parts with the same answer to whether their blocks are kept, with what is kept."""
        parts = ((part, self._load(part)) for part in _split(wanted))
        return groupby(parts, lambda part: part[1] is not None)

    def _read(self, server: StreamReader, wanted: Range) -> Iterator[pa.RecordBatch]:
        """Read blocks, and parts of blocks, from the stream."""
        stored = (each.stored for page in server.read(wanted) for each in page)
        for number, records in groupby(stored, lambda each: _number(each.sequence)):
            batches: list[pa.RecordBatch] = []
            count = 0
            for batch in meter.batches([records]):
                yield batch
                count += len(batch)
                batches = [*batches, batch] if count <= MOST_ROWS else []
            if batches:
                self._keep(number, pa.Table.from_batches(batches, _SCHEMA))

    def _load(self, wanted: Range) -> pa.Table | None:
        """Read the wanted rows of a block; None if it isn't kept, or can't be read."""
        try:
            found = pq.ParquetFile(self._path(_number(wanted.first))).read(use_threads=False)
        except (OSError, pa.ArrowException):
            return None
        if found.schema != _SCHEMA:
            return None
        if _is_whole(wanted):
            return found
        sequence = found.column("sequence")
        return found.filter(pc.and_(pc.greater_equal(sequence, wanted.first), pc.less_equal(sequence, wanted.last)))

    def _keep(self, number: int, rows: pa.Table) -> None:
        """Keep a block. No effect if it has gaps, or if it can't be written: the next report reads it again."""
        if pc.count_distinct(rows.column("sequence")).as_py() != BLOCK:
            return
        new = self.folder / f"{_NEW}{uuid.uuid4().hex}"
        with contextlib.suppress(OSError, pa.ArrowException):
            try:
                pq.write_table(rows, new, compression="zstd")
                new.replace(self._path(number))
            finally:
                new.unlink(missing_ok=True)

    def clean(self, server: StreamReader, stream: Stream) -> None:
        """Remove the blocks that the stream has no longer, and what killed reports have left; all blocks if the stream
        has other records now.
        """
        kept = self.blocks()
        is_alike = not kept or self._is_alike(server, stream, kept[-1])
        for number in kept:
            if not is_alike or _last(number) < stream.first:
                self._path(number).unlink(missing_ok=True)
        for path in self.folder.glob(f"{_NEW}*"):
            if time.time() - path.stat().st_mtime > _WRITTEN_S:
                path.unlink(missing_ok=True)

    def blocks(self) -> list[int]:
        """Return the numbers of the blocks that are kept."""
        return sorted(int(path.stem) for path in self.folder.glob("*.parquet") if path.stem.isdigit())

    def _is_alike(self, server: StreamReader, stream: Stream, number: int) -> bool:
        """Whether the stream still has the last record of a block."""
        last = Range(stream.name, _last(number), _last(number))
        kept = self._load(last)
        if not kept or not stream.first <= last.first <= stream.last:
            return False
        stored = [each.stored.at // 1_000 for page in server.read(last) for each in page]
        return stored == list(pc.unique(pc.cast(kept.column("stored"), pa.int64())).to_pylist())

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012}.parquet"


def open_cache(root: Path, options: Options) -> RecordCache | None:
    """Open the cache of the environment's records; None if its folder can't be written, or there are no records. Raises
    EvenlaneError, Unreachable.
    """
    with StreamReader(options.settings) as server:
        stream = server.stream(names.meter_stream(options.settings.env))
        if stream is None:
            return None
        cache = RecordCache(root / _folder_of(stream))
        try:
            cache.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.utime(cache.folder)
            _remove_unused(root)
            cache.clean(server, stream)
        except OSError:
            return None
    return cache


def _folder_of(stream: Stream) -> str:
    rows_of = f"{evenlane.__version__}-{zlib.crc32(METER.json().encode()):08x}"
    return f"{stream.name}-{re.sub('[^0-9A-Za-z]+', '-', stream.created)}-{rows_of}"


def _remove_unused(root: Path) -> None:
    """Remove the folders of streams that no report has read for a month."""
    for folder in root.iterdir():
        if time.time() - folder.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)


def _split(wanted: Range) -> Iterator[Range]:
    """Split a range at the ends of blocks."""
    first = wanted.first
    while first <= wanted.last:
        last = min(wanted.last, _last(_number(first)))
        yield wanted._replace(first=first, last=last)
        first = last + 1


def _join(parts: Sequence[Range]) -> Range:
    """Join parts that follow each other."""
    return parts[0]._replace(last=parts[-1].last)


def _number(sequence: int) -> int:
    """Return the block of a sequence."""
    return (sequence - 1) // BLOCK


def _last(number: int) -> int:
    """Return the last sequence of a block."""
    return (number + 1) * BLOCK


def _is_whole(wanted: Range) -> bool:
    """Whether a range inside a block is all of it."""
    return wanted.last - wanted.first + 1 == BLOCK
