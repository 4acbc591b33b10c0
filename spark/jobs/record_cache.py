"""The record cache: meter records that a report has read, as Parquet on this machine. The next report reads only newer
ones from NATS (decision 0044).

A stream's records never change, and the oldest ones leave it. They are cached in blocks of consecutive sequences. Each
stream has a folder, whose name contains the stream's creation time and a checksum of the code that makes rows. If a
server is restored from a backup, other records may get the same sequences: the newest block is compared with the
stream.
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
from evenlane.engine.core.export_port import Range
from evenlane.engine.core.records import meter_record
from evenlane.spark import schemas
from evenlane.spark.out import place
from evenlane.spark.source import checks, columns, meter
from evenlane.spark.source.plan import Task
from evenlane.spark.source.ranges import present

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from evenlane.engine.core.export_port import Stream
    from evenlane.spark.source.options import Options

BLOCK = 2_048
"""Number of sequences of a block."""
MOST_ROWS = 8 * BLOCK
"""A block with more rows isn't cached: reading it from Parquet saves little time."""
MOST_BYTES = 1 << 30
"""The largest size of a stream's folder, and the free space on its disk below which nothing is cached."""
_UNUSED_S = 30 * 86_400
_NEW, _ABANDONED_S = "_new-", 3_600
_FOLDERS = "METER_*"
_FILES = f"{'[0-9]' * 12}.parquet"
_ROW_FORMAT: tuple[ModuleType, ...] = (meter_record, schemas, checks, columns, meter)
_SCHEMA = columns.arrow_schema(schemas.METER)


def default_root() -> Path | None:
    """Return the cache folder of this user; None for a user without a home."""
    try:
        root = Path(platformdirs.user_cache_dir("evenlane", appauthor=False)) / "records"
    except RuntimeError:
        return None
    return root if root.is_absolute() else None


class RecordCache(NamedTuple):
    """The cached blocks of a stream. Block n has the sequences from n * BLOCK + 1 to (n + 1) * BLOCK.

    Invariant: a block's file has all of these sequences.
    """

    folder: Path

    def rows(self, options: Options, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows, and cache blocks that the task reads from the stream. Raises EvenlaneError,
        Unreachable.
        """
        assert not task.files
        for wanted in task.ranges:
            missing: list[Range] = []
            for part in _split(wanted):
                cached = self._load(part)
                if cached is None:
                    missing.append(part)
                    continue
                yield from self._read(options, missing)
                missing = []
                yield from cached.to_batches()
            yield from self._read(options, missing)

    def _read(self, options: Options, parts: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Read parts that follow each other from the stream."""
        if not parts:
            return
        with StreamReader(options.settings) as server:
            pages = server.read(parts[0]._replace(last=parts[-1].last))
            stored = (each.stored for page in pages for each in page)
            for number, records in groupby(stored, lambda each: _number(each.sequence)):
                batches: list[pa.RecordBatch] = []
                count = 0
                for batch in meter.batches([records]):
                    yield batch
                    count += len(batch)
                    batches = [*batches, batch] if count <= MOST_ROWS else []
                if batches:
                    self._store(number, pa.Table.from_batches(batches, _SCHEMA))

    def _load(self, wanted: Range) -> pa.Table | None:
        """Load rows of a block; None if it isn't cached, or can't be read."""
        try:
            path = self._path(_number(wanted.first))
            found = pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)
        except (OSError, pa.ArrowException):
            return None
        if found.schema != _SCHEMA:
            return None
        if wanted.last - wanted.first + 1 == BLOCK:
            return found
        sequence = found.column("sequence")
        return found.filter(pc.and_(pc.greater_equal(sequence, wanted.first), pc.less_equal(sequence, wanted.last)))

    def _store(self, number: int, rows: pa.Table) -> None:
        """Store a block. No effect if it isn't whole, or can't be written: the next report reads it again."""
        if pc.count_distinct(rows.column("sequence")).as_py() != BLOCK:
            return
        new = self.folder / f"{_NEW}{uuid.uuid4().hex}"
        with contextlib.suppress(OSError, pa.ArrowException):
            if shutil.disk_usage(self.folder).free < MOST_BYTES:
                return
            try:
                pq.write_table(rows, new, compression="zstd", write_page_checksum=True)
                new.replace(self._path(number))
            finally:
                new.unlink(missing_ok=True)

    def clean(self, server: StreamReader, stream: Stream) -> None:
        """Remove blocks of records that the stream doesn't have, the oldest blocks of a large folder, and files of
        reports that were killed. Raises OSError.
        """
        size = 0
        numbers = self.blocks()
        if numbers and not self._has_record_of(server, stream, numbers[-1]):
            stream = stream._replace(first=stream.last + 1)  # no block counts
        for number in reversed(numbers):
            size += self._path(number).stat().st_size
            if not stream.first <= _last(number) <= stream.last or size > MOST_BYTES:
                self._path(number).unlink()
        for path in self.folder.glob(f"{_NEW}*"):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()

    def blocks(self) -> list[int]:
        """Return the numbers of the cached blocks, in order."""
        return sorted(int(path.stem) for path in self.folder.glob(_FILES))

    def _has_record_of(self, server: StreamReader, stream: Stream, number: int) -> bool:
        """Whether the last record of a block arrived when the stream's record of the same sequence did."""
        last = Range(stream.name, _last(number), _last(number))
        cached = self._load(last)
        if cached is None or last.first > stream.last:
            return False
        stored = [each.stored.at // 1_000 for page in server.read(last) for each in page]
        return stored == list(pc.unique(pc.cast(cached.column("stored"), pa.int64())).to_pylist())

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012}.parquet"


@contextlib.contextmanager
def open_cache(root: Path, options: Options) -> Iterator[RecordCache | None]:
    """Yield the cache of the environment's records, for this process alone. Yield None if it can't be used: another
    process uses it, the folder can't be written, or the stream has gaps, as cached blocks might have the records that
    were deleted. Raises EvenlaneError, Unreachable.
    """
    with contextlib.ExitStack() as stack:
        cache = None
        with contextlib.suppress(OSError, place.Busy):
            _remove_unused(root)
            with StreamReader(options.settings) as server:
                for stream in present(server, options):  # one, or none
                    cache = _open(root, server, stream, stack)
        yield cache


def _open(root: Path, server: StreamReader, stream: Stream, stack: contextlib.ExitStack) -> RecordCache | None:
    cache = RecordCache(root / _folder_of(stream))
    cache.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stack.enter_context(place.lock(cache.folder, f"another report uses {cache.folder}"))
    os.utime(cache.folder)
    if stream.messages < stream.last - stream.first + 1:
        shutil.rmtree(cache.folder)
        return None
    cache.clean(server, stream)
    return cache


def align(tasks: Sequence[Task]) -> list[Task]:
    """Move the limits between the tasks of a stream to the ends of blocks, since a task caches whole blocks only. No
    effect on tasks that are too small for that.
    """
    ranges = [each for task in tasks for each in task.ranges]
    if len(ranges) != len(tasks) or min((each.last - each.first + 1 for each in ranges[:-1]), default=0) < 2 * BLOCK:
        return list(tasks)
    limits = [min(_last(_number(each.last)), ranges[-1].last) for each in ranges]
    firsts = [ranges[0].first, *(limit + 1 for limit in limits)]
    moved = (each._replace(first=first, last=last) for each, first, last in zip(ranges, firsts, limits, strict=False))
    return [Task([each]) for each in moved if each.first <= each.last]


def _folder_of(stream: Stream) -> str:
    code = [Path(module.__file__ or "").read_bytes() for module in _ROW_FORMAT]
    checksum = zlib.crc32(b"".join(code))
    created = re.sub("[^0-9A-Za-z]+", "-", stream.created)
    return f"{stream.name}-{created}-{evenlane.__version__}-{checksum:08x}"


def _remove_unused(root: Path) -> None:
    """Remove the folders of streams that no report has read for a month. Raises OSError."""
    for folder in root.glob(_FOLDERS):
        if time.time() - folder.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)


def _split(wanted: Range) -> Iterator[Range]:
    """Split a range at the ends of blocks."""
    first = wanted.first
    while first <= wanted.last:
        last = min(wanted.last, _last(_number(first)))
        yield wanted._replace(first=first, last=last)
        first = last + 1


def _number(sequence: int) -> int:
    """Return the block of a sequence."""
    return (sequence - 1) // BLOCK


def _last(number: int) -> int:
    """Return the last sequence of a block."""
    return (number + 1) * BLOCK
