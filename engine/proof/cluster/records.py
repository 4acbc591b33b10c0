"""The records that handlers of a cluster write: a file for each node, a record for each start and end."""

from __future__ import annotations

from collections import defaultdict
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "BENCH_RECORDS"  # the file that a node's handlers append to
SERVICE = "BENCH_SERVICE_S"  # default duration of a handler
SERVICE_S = 0.005
HELD = b"held"  # first part of the body of a message whose handler runs for long; a space and ns follow
_FORM = Struct("<QQQQQIHBBB16s")
_KINDS = ("lanes", "later")


class HandlerRecord(NamedTuple):
    """One begin (`began`) or end of a handler: `at` in ns since boot, `put` when the store took the message and `due`
    when it was due (0: at once), unix ns.

    With `band` and `project` the record knows the message's queue; `kind`, `partition` and `sequence` name the message,
    and `number` is its number in the load, if it came from one.
    """

    at: int
    put: int
    sequence: int
    epoch: int
    partition: int
    attempt: int
    band: int
    began: bool
    kind: str
    held: bool
    project: str
    node: str
    due: int = 0
    number: int = 0

    @property
    def message(self) -> tuple[int, str, int]:
        """Identifies the message, on any node."""
        return self.partition, self.kind, self.sequence

    @property
    def kind_of_project(self) -> str:
        """The first part of the project's name: `paced` of `paced-7`."""
        return self.project.partition("-")[0]


def pack_record(record: HandlerRecord) -> bytes:
    """Encode everything but the node, whose id is the file's name. `attempt` is capped at 255, `project` is cut to 16
    bytes, and `band` must be at most 255.
    """
    flags = record.began | record.held << 1 | _KINDS.index(record.kind) << 2
    numbers = (record.at, record.put, record.due, record.sequence, record.epoch, record.number, record.partition)
    return _FORM.pack(*numbers, min(record.attempt, 255), record.band, flags, record.project.encode())


def unpack_records(raw: bytes, node: str) -> list[HandlerRecord]:
    """Decode whole records."""
    return [
        HandlerRecord(
            at, put, sequence, epoch, partition, attempt, band,
            bool(flags & 1), _KINDS[flags >> 2], bool(flags & 2), project.rstrip(b"\0").decode(), node, due, number,
        )
        for at, put, due, sequence, epoch, number, partition, attempt, band, flags, project in _FORM.iter_unpack(raw)
    ]  # fmt: skip


class HandlerRecords:
    """The records of all nodes: one file per node in `folder`, named by the node's id. `read` appends the new ones.
    `handled` counts the handled messages, by kind of project.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_to: dict[str, int] = {}
        self.records: list[HandlerRecord] = []
        self.handled: defaultdict[str, set[tuple[int, str, int]]] = defaultdict(set)

    def read(self) -> list[HandlerRecord]:
        """Return the new records, in no particular order across nodes."""
        fresh: list[HandlerRecord] = []
        for path in sorted(self._folder.iterdir()):
            start = self._read_to.get(path.name, 0)
            with path.open("rb") as file:
                file.seek(start)
                raw = file.read()
            whole = len(raw) // _FORM.size * _FORM.size
            self._read_to[path.name] = start + whole
            fresh += unpack_records(raw[:whole], path.name)
        self.records += fresh
        for record in fresh:
            if not record.began:
                self.handled[record.kind_of_project].add(record.message)
        return fresh
