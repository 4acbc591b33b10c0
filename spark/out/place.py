"""Writes a report next to the existing one, and replaces that once it is complete."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PREFIX = ".evenlane-report-"
_PREVIOUS = "previous"
_PATTERN = "[]{}*?\\"


class Staging(NamedTuple):
    """Two folders: for the new content, and for temporary files."""

    new: Path
    scratch: Path


class Busy(EvenlaneError):
    """Another process is writing there."""


def check_name(path: str) -> None:
    """Raise ConfigError for a name that Spark and Hadoop take for a pattern: they wouldn't find their own files."""
    found = next((each for each in path if each in _PATTERN), None)
    if found is not None:
        raise ConfigError(f"{path} has {found} in its name, which Spark takes for a pattern: name another folder")


def check(folder: Path) -> Path:
    """Return the folder, created if missing. Raises ConfigError if it isn't writable."""
    check_name(str(folder.absolute()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"--out: {folder} is not a folder: name one, or one that can be made") from None
    except OSError as error:
        raise ConfigError(f"--out: {folder} can't be written to: {error.strerror}") from None
    return folder


def url(folder: Path) -> str:
    """Return a folder's URL for Hadoop, which doesn't decode escapes: `Path.as_uri` of a name with spaces would name
    another folder.
    """
    return f"file://{folder}"


@contextlib.contextmanager
def stage(folder: Path, ours: Iterable[str] = ()) -> Iterator[Staging]:
    """Yield folders. If the block succeeds, content of `new` replaces entries of the same names in `folder`, and
    entries in `ours` that `new` lacks are removed, as they would be outdated.

    If the block fails or the process is killed, `folder` stays as it was. Raises Busy while another process is in the
    block for it.
    """
    folder = folder.absolute()  # Spark's working directory may differ
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder, f"another report is being written to {folder}: wait until it is done, or name another folder"):
        for left in folder.glob(f"{_PREFIX}*"):  # left by a process that was killed
            _put_back(left / "scratch" / _PREVIOUS, folder)
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_PREFIX) as made:
            staging = Staging(Path(made, "new"), Path(made, "scratch"))
            for each in staging:
                each.mkdir()
            yield staging
            made_now = sorted(staging.new.iterdir())
            for each in made_now:
                _replace(each, folder / each.name, staging.scratch / _PREVIOUS)
            for name in set(ours) - {each.name for each in made_now}:
                _remove(folder / name)


def _put_back(previous: Path, folder: Path) -> None:
    """Restore entries that a killed process had moved away and not yet replaced."""
    for each in previous.glob("*"):
        if not (folder / each.name).exists():
            each.rename(folder / each.name)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _replace(new: Path, old: Path, aside: Path) -> None:
    if new.is_dir() or old.is_dir():  # no call replaces a folder that isn't empty
        aside.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            old.rename(aside / old.name)
    new.replace(old)


@contextlib.contextmanager
def lock(folder: Path, otherwise: str) -> Iterator[None]:
    """Hold a lock on the folder. Raises Busy, with the sentence `otherwise`, while another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(otherwise) from None
        yield
    finally:
        os.close(descriptor)
