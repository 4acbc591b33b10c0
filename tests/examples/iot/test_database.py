"""P7, L: the database holds each message once, and the totals find what is missing."""

import asyncio
import json
import sqlite3

import pytest

from examples.iot.database import Data, Database, Refusal, connect
from examples.iot.summary import audit


def data(message_id: str, project: str = "acme", *, sent_at: float = 100.0, stored_at: float = 101.5) -> Data:
    return Data(project, message_id, json.dumps({"id": message_id, "sent_at": sent_at}).encode(), stored_at, "n1")


async def test_message_that_is_handled_twice_is_stored_once_and_counted(tmp_path):
    async with Database(tmp_path / "iot.db") as database:
        await asyncio.gather(*(database.store(data("a")) for _ in range(3)), database.store(data("b")))
        await database.store(data("a", "globex"))
    rows = connect(tmp_path / "iot.db").execute("SELECT project, id, times FROM data ORDER BY 1, 2").fetchall()
    assert [("acme", "a", 3), ("acme", "b", 1), ("globex", "a", 1)] == rows


async def test_several_processes_write_to_one_file(tmp_path):
    async with Database(tmp_path / "iot.db") as one, Database(tmp_path / "iot.db") as other:
        stored = (each.store(data(f"{name}-{n}")) for n in range(50) for name, each in (("a", one), ("b", other)))
        await asyncio.gather(*stored)
    assert (100,) == connect(tmp_path / "iot.db").execute("SELECT count(*) FROM data").fetchone()


async def test_write_that_fails_is_reported_to_each_caller_and_the_next_succeeds(tmp_path):
    async with Database(tmp_path / "iot.db") as database:
        connection = connect(tmp_path / "iot.db")
        connection.execute("ALTER TABLE data RENAME TO away")
        connection.commit()
        results = await asyncio.gather(database.store(data("a")), database.store(data("b")), return_exceptions=True)
        assert [sqlite3.OperationalError] * 2 == [type(each) for each in results]
        connection.execute("ALTER TABLE away RENAME TO data")
        connection.commit()
        await database.store(data("c"))
        assert [("c",)] == connection.execute("SELECT id FROM data").fetchall()


async def test_row_that_sqlite_cant_take_is_reported_and_the_next_is_written(tmp_path):
    async with Database(tmp_path / "iot.db") as database:
        with pytest.raises(UnicodeEncodeError):
            await database.refuse(Refusal("IOT-1", "\ud800", "why not", b"", 1.0))
        await database.store(data("a"))


async def test_totals_find_what_is_missing_handled_again_and_refused(tmp_path):
    path = tmp_path / "iot.db"
    async with Database(path) as database:
        for each in (data("a"), data("b", stored_at=103.0), data("b")):
            await database.store(each)
        for number, body in enumerate((b'{"id": []}', b'{"id": "\xff"}', b"[" * 100_000)):
            await database.refuse(Refusal(f"IOT-2{number}", "some.subject", "closed", body, 1.0))
        for _ in range(2):  # delivered again
            await database.refuse(Refusal("IOT-1", "some.subject", "closed", b'{"id": "r"}', 1.0))
    totals = audit(path, {("acme", name) for name in ("a", "b", "r", "lost")} | {("globex", "a")})
    assert (5, 2, 2, 1, 4) == (totals.acknowledged, totals.stored, totals.missing, totals.handled_again, totals.refused)
    assert (1.5, 3.0) == (totals.wait(0), totals.wait(1))


def test_totals_of_nothing(tmp_path):
    totals = audit(tmp_path / "iot.db", set())
    assert (0, 0, 0.0) == (totals.stored, totals.missing, totals.wait(0.5))
    with pytest.raises(sqlite3.OperationalError):
        audit(tmp_path / "no" / "iot.db", set())
