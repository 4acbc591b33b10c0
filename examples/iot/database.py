"""The database file, SQLite: data of devices, once for each message id, and messages that gateways have refused."""

import asyncio
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_SCHEMA = """
CREATE TABLE IF NOT EXISTS data (
    project TEXT, id TEXT, body BLOB, stored_at REAL, node TEXT, times INTEGER, PRIMARY KEY (project, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refused (
    id TEXT PRIMARY KEY, subject TEXT, reason TEXT, body BLOB, refused_at REAL
) WITHOUT ROWID;
"""
# A message that is handled twice, such as after a crash, is counted and changes nothing else.
_STORE = """
INSERT INTO data VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT (project, id) DO UPDATE SET times = times + 1
"""
_REFUSE = "INSERT INTO refused VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
_BUSY_S = 30.0  # all nodes and gateways of the machine write to one file


class Data(NamedTuple):
    project: str
    id: str
    body: bytes
    stored_at: float
    """Unix seconds."""
    node: str


class Refusal(NamedTuple):
    id: str
    subject: str
    reason: str
    body: bytes
    refused_at: float


class Database:
    """`async with Database(path) as database`: rows that arrive while others are written share the next transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[tuple[str, tuple[object, ...], asyncio.Future[None]]] = []
        self._arrived = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._connection = connect(self._path)
        self._writing = asyncio.create_task(self._write_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writing.cancel()
        await asyncio.wait([self._writing])
        self._connection.close()

    async def store(self, data: Data) -> None:
        """Store data; return once it is on disk. Raises sqlite3.Error."""
        await self._add(_STORE, data)

    async def refuse(self, refusal: Refusal) -> None:
        """Keep a refused message; return once it is on disk. Raises sqlite3.Error."""
        await self._add(_REFUSE, refusal)

    async def _add(self, statement: str, row: tuple[object, ...]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((statement, row, done))
        self._arrived.set()
        await done

    async def _write_all(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch, self._waiting = self._waiting, []
            error: Exception | None = None
            try:
                await asyncio.to_thread(self._write, [(statement, row) for statement, row, _ in batch])
            except Exception as failed:  # noqa: BLE001 - the callers learn it, and the next batch is written
                error = failed
            for _, _, done in batch:
                if not done.done():
                    done.set_result(None) if error is None else done.set_exception(error)

    def _write(self, rows: list[tuple[str, tuple[object, ...]]]) -> None:
        with self._connection:  # one transaction
            for statement, row in rows:
                self._connection.execute(statement, row)


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, and create its tables if they are missing."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(_SCHEMA)
    return connection
