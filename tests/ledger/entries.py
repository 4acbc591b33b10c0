"""The ledger: one line for each thing that a handler did, written at once so that no kill -9 loses any of it."""

import os
from pathlib import Path
from typing import NamedTuple

VARIABLE = "LEDGER"


class Entry(NamedTuple):
    """`at` is ns since boot, the same clock in all processes; `what` is `begin`, `ok`, `fail` or `cancelled`; `chosen`
    is when the scheduler handed the message out, which on a busy machine is a while before its handler's first line.
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
    """The whole lines from a byte on, and where the next ones will begin."""
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
    """Where the handlers of this process write."""
    return Path(os.environ[VARIABLE])
