"""Meter records that were laid down as Parquet, by day and hour of their event time (spark/jobs/archive.py).

Beside the hours `_environment` says whose records they are. `_progress.json` names the batch that was written last,
and whether all of its files are in their hours: until they are, none of them counts, so that a reader has all of a
batch or nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.spark.schemas import METER
from evenlane.spark.source.columns import arrow_schema
from evenlane.spark.source.filters import Narrow, both
from evenlane.spark.source.options import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SCHEMA = arrow_schema(METER)
_HOUR = re.compile(r"/day=(\d{4}-\d\d-\d\d)/hour=(\d\d)/[^/]+\.parquet$")
_HOUR_NS = 3_600_000_000_000
_CLOCKS_NS = 600_000_000_000  # as in filters.py: what came to the server so much later may be of an earlier hour
_ROWS = 65_536
_NEWEST = 16  # files, among which the latest record is
_LOOKS = 5  # at files that are being written
PROGRESS = "_progress.json"
ENVIRONMENT = "_environment"


def files(folder: str, span: Span) -> list[str]:
    """Those that may hold something of the time, the oldest first. Raises EvenlaneError if there is no such folder."""
    system, root = _system(folder)
    if system.get_file_info(root).type != pafs.FileType.Directory:
        raise EvenlaneError(f"option archive: there is no folder {folder}")
    hours = sorted((_hour(path), path) for path in _whole(system, root))
    return [
        path
        for hour, path in hours
        if (span.since is None or hour + _HOUR_NS + _CLOCKS_NS > span.since)
        and (span.until is None or hour - _CLOCKS_NS < span.until)
    ]


def refuse_other(folder: str, env: str) -> None:
    """Raises EvenlaneError if the records are another environment's: one report can't be of two."""
    system, root = _system(folder)
    try:
        with system.open_input_file(f"{root}/{ENVIRONMENT}") as opened:
            check_environment(folder, opened.read().decode(), env)
    except FileNotFoundError:
        return
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise EvenlaneError(f"{root}/{ENVIRONMENT} can't be read: {error}") from error


def check_environment(folder: str, whose: str, env: str) -> None:
    """Raises ConfigError for another one."""
    if whose != env:
        raise ConfigError(f"{folder} holds records of the environment {whose}, not {env}: name another folder")


def progress(batch: str, *, whole: bool) -> str:
    """What PROGRESS says."""
    return json.dumps({"batch": batch, "whole": whole})


def name_of(batch: str, part: str) -> str:
    """Of a batch's file, in its hour."""
    return f"{batch}-{part}"


def _whole(system: pafs.FileSystem, root: str) -> list[str]:
    """The files that count."""
    paths: list[str] = []
    said = _said(system, root)
    for _ in range(_LOOKS):
        before = said
        paths = [each.path for each in system.get_file_info(pafs.FileSelector(root, recursive=True))]
        said = _said(system, root)
        if before == said:
            break
    batch, whole = said
    found = (path for path in paths if _HOUR.search(path) and "/_" not in path[len(root) :])
    return [path for path in found if whole or name_of(f"/{batch}", "") not in path]


def _said(system: pafs.FileSystem, root: str) -> tuple[str, bool]:
    """By PROGRESS: a batch, and whether it is whole."""
    try:
        with system.open_input_file(f"{root}/{PROGRESS}") as opened:
            said = json.loads(opened.read())
            return str(said["batch"]), bool(said["whole"])
    except FileNotFoundError:
        return "", True
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise EvenlaneError(f"{root}/{PROGRESS} can't be read: {error}") from error


def after(paths: Sequence[str], narrow: Narrow) -> Narrow:
    """What the stream has beyond that: what came after the last record in the archive. (Where it is read twice all the
    same, reports bear it.).
    """
    last = max((_last_stored(path) for path in paths[-_NEWEST:]), default=0)
    return replace(narrow, span=both(narrow.span, Span(since=last + 1_000))) if last else narrow


def batches(path: str, span: Span) -> Iterator[pa.RecordBatch]:
    """A file's rows that came in this time; what an older release didn't write is null. Raises EvenlaneError for what
    is no such file.
    """
    system, inside = _system(path)
    try:
        with system.open_input_file(inside) as opened:
            for found in pq.ParquetFile(opened).iter_batches(_ROWS):
                yield _within(_as_today(found), span)
    except (OSError, pa.ArrowException) as error:
        raise EvenlaneError(f"{path} in the archive can't be read: {error}") from error


def _as_today(found: pa.RecordBatch) -> pa.RecordBatch:
    there = set(found.schema.names)
    columns = [
        pc.cast(found.column(field.name), field.type) if field.name in there else pa.nulls(len(found), field.type)
        for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _within(found: pa.RecordBatch, span: Span) -> pa.RecordBatch:
    stored = pc.cast(found.column("stored"), pa.int64())  # us
    for at, keep in ((span.since, pc.greater_equal), (span.until, pc.less)):
        if at is not None:
            found = found.filter(keep(stored, -(-at // 1_000)))
            stored = pc.cast(found.column("stored"), pa.int64())
    return found


def _last_stored(path: str) -> int:
    """Unix ns; 0 if the file doesn't say."""
    system, inside = _system(path)
    try:
        with system.open_input_file(inside) as opened:
            stored = pq.ParquetFile(opened).read(columns=["stored"]).column("stored")
    except (OSError, pa.ArrowException) as error:
        raise EvenlaneError(f"{path} in the archive can't be read: {error}") from error
    last = pc.max(stored).as_py()
    return 0 if last is None else int(last.timestamp() * 1_000_000) * 1_000


def _hour(path: str) -> int:
    """When a file's hour begins, unix ns."""
    found = _HOUR.search(path)
    assert found is not None
    return int(datetime.strptime(f"{found[1]} {found[2]} +0000", "%Y-%m-%d %H %z").astimezone(UTC).timestamp()) * 10**9


def _system(path: str) -> tuple[pafs.FileSystem, str]:
    """Raises EvenlaneError for a kind of URL that isn't known here."""
    try:
        if "://" in path or path.startswith("file:"):
            system, inside = pafs.FileSystem.from_uri(path)
        else:
            system, inside = pafs.LocalFileSystem(), path
        return system, inside.rstrip("/") or "/"
    except (OSError, pa.ArrowException) as error:
        raise EvenlaneError(f"option archive: {path} can't be opened: {error}") from error
