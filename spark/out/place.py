"""Where a report is written: beside what is there, and put in its place when all of it is done."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = ".evenlane-report-"


class Staging(NamedTuple):
    """Folders: for what will be put in its place, and for what is needed until then."""

    new: Path
    scratch: Path


class Busy(EvenlaneError):
    """Somebody else is writing there."""


def check(folder: Path) -> Path:
    """The folder, made if it isn't there. Raises ConfigError if nothing can be written to it."""
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
    """As Hadoop takes it: it would read no escapes, so that `Path.as_uri` of a name with spaces names another one."""
    return f"file://{folder}"


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Staging]:
    """`new` is a folder whose files and folders replace those of the same names in `folder` when the block ends well.

    If it doesn't, or the process is killed, `folder` stays as it was. Raises Busy while another process is in the
    block for it.
    """
    folder = folder.absolute()  # for Spark, whose idea of where it is may be another one
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        for left in folder.glob(f"{_PREFIX}*"):  # by a process that was killed
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_PREFIX) as made:
            staging = Staging(Path(made, "new"), Path(made, "scratch"))
            for each in staging:
                each.mkdir()
            yield staging
            for each in sorted(staging.new.iterdir()):
                _replace(each, folder / each.name, staging.scratch / "former")


def _replace(new: Path, old: Path, aside: Path) -> None:
    if new.is_dir() or old.is_dir():  # no call replaces a folder that has files
        aside.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            old.rename(aside / old.name)
    new.replace(old)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"another report is being written to {folder}: wait until it is done, or name another folder"
            ) from None
        yield
    finally:
        os.close(descriptor)
