"""The ledger: one line for each begin and end of a handler, written at once so that no kill -9 loses any."""

import os
from pathlib import Path
from typing import NamedTuple

VARIABLE = "LEDGER"


class Entry(NamedTuple):
    """A line. `at` is in ns since boot, the same clock in all processes. `what` is `begin`, `ok`, `fail` or
    `cancelled`. `chosen` is when the scheduler handed the message out; on a busy machine, its handler begins later.
    """

    at: int
    pid: int
    what: str
    project: str
    id: str
    attempt: int
    stream: str
    sequence: int
    epoch: int
    priority: str
    digest: str
    chosen: int


def read(path: Path) -> list[Entry]:
    """All entries so far, in the order they were written."""
    return read_from(path, 0)[0]


def read_from(path: Path, offset: int) -> tuple[list[Entry], int]:
    """The complete lines from an offset on, and the offset of the next ones."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        raw = file.read()
    whole = raw[: raw.rfind(b"\n") + 1]
    return [_entry(line) for line in whole.decode().splitlines()], offset + len(whole)


def _entry(line: str) -> Entry:
    words = line.split("\t")
    at, pid, what, project, own, attempt, stream, sequence, epoch, priority, digest, chosen = words
    return Entry(
        int(at),
        int(pid),
        what,
        project,
        own,
        int(attempt),
        stream,
        int(sequence),
        int(epoch),
        priority,
        digest,
        int(chosen),
    )


def path() -> Path:
    """The ledger of the handlers in this process."""
    return Path(os.environ[VARIABLE])
