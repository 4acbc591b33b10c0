"""Reads archived meter records: Parquet by day and hour of their event time (spark/jobs/archive.py).

`_environment` in the same folder names the records' environment, or cluster if they are of a named subscription.
`_progress.json` names the last batch and says whether all of its files are in their hours. Until they are, none of them
counts, so that a reader sees all of a batch or nothing.
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

from evenlane.engine.base import names
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.spark.schemas import METER
from evenlane.spark.source.columns import arrow_schema
from evenlane.spark.source.filters import ReadFilter, intersect
from evenlane.spark.source.options import TimeRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SCHEMA = arrow_schema(METER)
_HOUR = re.compile(r"/day=(\d{4}-\d\d-\d\d)/hour=(\d\d)/[^/]+\.parquet$")
_HOUR_NS = 3_600_000_000_000
_CLOCKS_NS = 600_000_000_000  # as in filters.py: a record that arrived this much later may belong to an earlier hour
_ROWS = 65_536
_NEWEST = 16  # files that may contain the latest record
_LOOKS = 5  # attempts while files are being written
PROGRESS = "_progress.json"
ENVIRONMENT = "_environment"


def files(folder: str, span: TimeRange) -> list[str]:
    """Return the files that may have records of the time span, oldest first. Raises EvenlaneError without a folder."""
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


def refuse_other(folder: str, cluster: str) -> None:
    """Raise EvenlaneError if the records belong to another environment or subscription: a report covers only one."""
    system, root = _system(folder)
    try:
        with system.open_input_file(f"{root}/{ENVIRONMENT}") as opened:
            check_cluster(folder, opened.read().decode(), cluster)
    except FileNotFoundError:
        return
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise EvenlaneError(f"{root}/{ENVIRONMENT} can't be read: {error}") from error


def check_cluster(folder: str, whose: str, cluster: str) -> None:
    """Raise ConfigError for another environment or subscription."""
    if names.env_of(whose) != (env := names.env_of(cluster)):
        there = names.env_of(whose)
        raise ConfigError(f"{folder} holds records of the environment {there}, not {env}: name another folder")
    if whose != cluster:
        there, wanted = map(_describe, (whose, cluster))
        raise ConfigError(f"{folder} holds records of {there}, not of {wanted}: name another folder")


def _describe(cluster: str) -> str:
    name = names.subscription_of(cluster)
    return f"subscription {name!r}" if name else "the subscription without a name"


def progress(batch: str, *, whole: bool) -> str:
    """Return the content of PROGRESS."""
    return json.dumps({"batch": batch, "whole": whole})


def name_of(batch: str, part: str) -> str:
    """Return the name of a batch's file in its hour."""
    return f"{batch}-{part}"


def _whole(system: pafs.FileSystem, root: str) -> list[str]:
    """Return the files that count."""
    paths: list[str] = []
    marked = _marker(system, root)
    for _ in range(_LOOKS):
        before = marked
        paths = [each.path for each in system.get_file_info(pafs.FileSelector(root, recursive=True))]
        marked = _marker(system, root)
        if before == marked:
            break
    batch, whole = marked
    found = (path for path in paths if _HOUR.search(path) and "/_" not in path[len(root) :])
    return [path for path in found if whole or name_of(f"/{batch}", "") not in path]


def _marker(system: pafs.FileSystem, root: str) -> tuple[str, bool]:
    """Return the batch in PROGRESS, and whether it is complete."""
    try:
        with system.open_input_file(f"{root}/{PROGRESS}") as opened:
            marked = json.loads(opened.read())
            return str(marked["batch"]), bool(marked["whole"])
    except FileNotFoundError:
        return "", True
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise EvenlaneError(f"{root}/{PROGRESS} can't be read: {error}") from error


def filter_after(paths: Sequence[str], narrow: ReadFilter) -> ReadFilter:
    """Narrow the stream to records after the last one in the archive. Reports tolerate records that are read twice."""
    last = max((_last_stored(path) for path in paths[-_NEWEST:]), default=0)
    return replace(narrow, span=intersect(narrow.span, TimeRange(since=last + 1_000))) if last else narrow


def batches(path: str, span: TimeRange) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows that arrived in this time span; columns that an older release didn't write are null. Raises
    EvenlaneError if the file isn't valid.
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
        pc.cast(found.column(field.name), field.type) if field.name in there else _fill(field, len(found))
        for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _fill(field: pa.Field, rows: int) -> pa.Array:
    """A column that an older release didn't write; it knew only the subscription without a name."""
    return pa.repeat("", rows) if field.name == "subscription" else pa.nulls(rows, field.type)


def _within(found: pa.RecordBatch, span: TimeRange) -> pa.RecordBatch:
    stored = pc.cast(found.column("stored"), pa.int64())  # us
    for at, keep in ((span.since, pc.greater_equal), (span.until, pc.less)):
        if at is not None:
            found = found.filter(keep(stored, -(-at // 1_000)))
            stored = pc.cast(found.column("stored"), pa.int64())
    return found


def _last_stored(path: str) -> int:
    """Return the arrival of a file's latest record, in unix ns; 0 if the file has none."""
    system, inside = _system(path)
    try:
        with system.open_input_file(inside) as opened:
            stored = pq.ParquetFile(opened).read(columns=["stored"]).column("stored")
    except (OSError, pa.ArrowException) as error:
        raise EvenlaneError(f"{path} in the archive can't be read: {error}") from error
    last = pc.max(stored).as_py()
    return 0 if last is None else int(last.timestamp() * 1_000_000) * 1_000


def _hour(path: str) -> int:
    """Return the start of a file's hour, in unix ns."""
    found = _HOUR.search(path)
    assert found is not None
    return int(datetime.strptime(f"{found[1]} {found[2]} +0000", "%Y-%m-%d %H %z").astimezone(UTC).timestamp()) * 10**9


def _system(path: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system and the path inside it. Raises EvenlaneError for an unknown kind of URL."""
    try:
        if "://" in path or path.startswith("file:"):
            system, inside = pafs.FileSystem.from_uri(path)
        else:
            system, inside = pafs.LocalFileSystem(), path
        return system, inside.rstrip("/") or "/"
    except (OSError, pa.ArrowException) as error:
        raise EvenlaneError(f"option archive: {path} can't be opened: {error}") from error
