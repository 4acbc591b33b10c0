"""Command `evenlane topics export`: writes all topics as a file for `evenlane topics apply`."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.base.plural import format_count
from evenlane.engine.cli.options import CommonOptions, common
from evenlane.engine.cli.topics.session import run_with_topics
from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from evenlane.engine.control.topics.export import Export

_STDOUT = Path("-")
_MOST_NOTES = 100  # lines
_MODE = 0o600  # mode of a new file: a topic's `push` may hold secrets of its endpoint

_File = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="File, written completely or not at all; - is stdout.")
]


@common
def export(given: CommonOptions, *, file: _File = _STDOUT) -> None:
    """Write all topics as the file that `topics apply` reads, to back them up or to move them to another etcd.

    The file is JSON, and the same topics make the same file. It has the fields that were set for each topic, with its
    state; for ordered topics also the groups and the spread in effect. It leaves out deleted topics, and has the
    settings in effect where the spec was rejected; a note on stderr names each of these topics. Templates and history
    are not exported. --file FILE is replaced in one step once everything is written; without topics it stays as it is.

    Example:
      evenlane topics export > topics.json
      evenlane topics export --file /backup/topics.json
      evenlane topics apply /backup/topics.json --yes
    """
    from evenlane.engine.control.topics.export import export_topics, format_export

    _check(file)

    found: Export = export_topics(run_with_topics(given, lambda client: client.all()))
    _print_notes(found.notes)
    if file == _STDOUT:
        print(format_export(found).decode(), end="")  # noqa: T201
        return
    if not found.topics:
        raise EvenlaneError(f"environment {given.load().settings.env!r} has no topics: {file} is left unchanged")
    _replace(file, format_export(found))
    print(f"exported {format_count(len(found.topics), 'topic')} to {file}")  # noqa: T201


def _check(file: Path) -> None:
    """Raise ConfigError for a wrong file name, before etcd is asked."""
    if file.suffix == ".toml":
        raise ConfigError(f"--file {file}: the export is JSON, and `topics apply` reads *.toml as TOML: name it *.json")
    with contextlib.suppress(OSError):
        if file != _STDOUT and not stat.S_ISREG(file.stat().st_mode):
            raise ConfigError(f"--file {file} is not a regular file")


def _print_notes(notes: dict[str, str]) -> None:
    for project, note in [*notes.items()][:_MOST_NOTES]:
        print(f"note: {project}: {note}", file=sys.stderr)  # noqa: T201
    if len(notes) > _MOST_NOTES:
        print(f"note: and {len(notes) - _MOST_NOTES:,} more", file=sys.stderr)  # noqa: T201


def _replace(file: Path, raw: bytes) -> None:
    """Replace the file in one step: at any time, even after a crash, it is the old file or the new one."""
    place = file.resolve()  # keeps a link
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else _MODE
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as opened:
                opened.write(raw)
                opened.flush()
                os.fchmod(opened.fileno(), mode)
                os.fsync(opened.fileno())
            fresh.replace(place)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"--file {file} can't be written: {error.strerror}") from None
