"""Two days of known loads on nodes in virtual time: surfaces and report show what the ledger has counted."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from evenlane.engine.base import names
from evenlane.engine.core.records.meter_record import decode
from evenlane.engine.runtime.embedded.ports import free_port
from tests.days.two_days import HOUR_S, HOURS, TwoDays
from tests.ledger.cli import evenlane
from tests.ledger.world import ProcessWorld
from tests.simulation.loop import SECOND
from tests.support.figures import different_counts
from tests.support.store.past_stream import fill_past_stream, leaf_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.figures import Figures

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(1_800)]

_DAY = 24 * HOUR_S * SECOND
_AFTER = 600 * SECOND  # nodes stop within this time after the second day
_TOLERANCE = 0.01
_LEVELS = ("backlog", "in_flight")  # at the end of a window; all else is counted


def test_two_days_on_nodes(tmp_path: Path) -> None:
    """X12, E11: in each hour and each day, counts are exact and rates are right within 1 %, while a node joins, another
    one stops, and a third one joins whose clock is 90 s ahead. No surface contradicts another.
    """
    days = TwoDays((time.time_ns() - _AFTER) // _DAY * _DAY - 2 * _DAY)
    days.run()
    assert not days.wrong, "\n".join(days.wrong)
    _check_loads(days)
    asyncio.run(_report(days, tmp_path))


def _check_loads(days: TwoDays) -> None:
    """Fail unless each load did what it is for."""
    total = {project: _total(hours) for project, hours in days.counted.items()}
    assert 10_000 == total["burst"]["handled"]
    assert total["steady"]["handled"] == total["failing"]["dead"] == total["third"]["handled"] > HOURS * 700
    assert 2 * total["failing"]["dead"] == total["failing"]["retried"]
    assert min(total["over"]["handled"], total["over"]["expired"]) > HOURS * 200
    assert min(total["paused"]["dropped"], total["paused"]["backlog"]) > 24 * 70
    assert total["delayed"]["handled"] > (HOURS - 1) * 350
    assert {"a", "b", "c"} == {decode(record.body).node for record in days.records}


async def _report(days: TwoDays, folder: Path) -> None:
    """Put the records on a real server, and compare the reports of it."""
    port = free_port()
    async with ProcessWorld(folder, nats_config=leaf_config(port)) as world:
        env, url = world.settings.env, world.servers.nats.url
        await fill_past_stream(url, port, names.meter_stream(env), f"meter.{env}", days.records)
        start, end = _time(days.began_ns), _time(days.began_ns + 2 * _DAY)
        for window, hours in (("1h", 1), ("1d", 24)):
            out = folder / window
            times = ("--since", start.isoformat(), "--until", end.isoformat())
            assert await evenlane(world, "report", "--out", str(out), "--window", window, *times)
            assert [] == list(_wrong_figures(days, out, hours))
            quality = json.loads((out / "report.json").read_text())["quality"]
            assert ["Nothing is missing."] * (HOURS // hours) == [each["sentence"] for each in quality]


def _time(unix_ns: int) -> datetime:
    return datetime.fromtimestamp(unix_ns / SECOND, UTC)


def _wrong_figures(days: TwoDays, out: Path, hours: int) -> Iterator[str]:
    """Yield a sentence for each wrong figure of a report with windows of this number of hours."""
    rows: dict[tuple[str, datetime], dict[str, Any]] = {
        (row["project"], row["window_start"]): row
        for row in pl.read_parquet(out / "tenants.parquet/**/*.parquet").to_dicts()
    }
    for project, counted in days.counted.items():
        for first in range(0, HOURS, hours):
            expected, start = _total(counted[first : first + hours]), _time(days.began_ns + first * HOUR_S * SECOND)
            row, where = rows.pop((project, start), None), f"{project}, hour {first}"
            if row is not None:
                yield from (f"{where}: {each}" for each in different_counts(expected, {"report": row}))
                yield from (f"{where}: {each}" for each in _different_rates(expected, row, hours * HOUR_S))
                assert expected.keys() <= row.keys()
            elif any(expected.values()):
                yield f"{where}: no row, and the ledger has {expected}"
    yield from (f"{project}: an unexpected row of {start}" for project, start in rows)


def _total(hours: list[Figures]) -> Figures:
    levels = {name: hours[-1][name] for name in _LEVELS}
    return {name: sum(hour[name] for hour in hours) for name in hours[0]} | levels


def _different_rates(expected: Figures, row: dict[str, Any], seconds: float) -> Iterator[str]:
    counts = {
        "arrival_rate": expected["arrived"],
        "handled_rate": expected["handled"],
        "failed_rate": expected["retried"] + expected["dead"],
        "drain_rate": sum(expected[name] for name in ("handled", "retried", "dead", "expired", "dropped")),
    }
    for name, count in counts.items():
        if row[name] != pytest.approx(count / seconds, rel=_TOLERANCE):
            yield f"{name} is {row[name]}, and the ledger has {count / seconds}"
