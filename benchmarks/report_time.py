"""Benchmark of a small report's whole time, against a bare Spark session that only counts the same records.

    python -m benchmarks.report_time [--repeat 3] [--json]              20 projects, 4 windows of 5 minutes
    python -m benchmarks.report_time --million rows [--repeat 3] [--json]       a million rows, in a warm session
    python -m benchmarks.report_time --million records [--archive] [--repeat 3] [--json]    ... of as many records

The small one starts processes in turn on a real nats-server with the same records: a PySpark session with Spark's own
settings that counts the rows, then `evenlane.spark.jobs.report`. Times include the start of Python and Java. The ratio
is that of the medians, of the same run: on a busy machine the times say little. `cpu_s` is the CPU time of all
processes, by which changes are compared.

A row is a queue of a record: a million of them are 1,000 records of 1,000 queues. The first report of a session isn't
counted. As `evenlane report` does, it caches records of few rows, and later reports read the cache. With `--archive`,
the first report stores the records in an archive instead.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import uvloop

from benchmarks.meter_load import load
from evenlane.engine.runtime.embedded.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import Sequence

BAR = 2.0
"""The highest ratio of a report's time to that of the bare session."""
BAR_MILLION_S = 15.0
_INTERVAL_S = 10
_SMALL = (137, 1, 60)  # records, nodes, queues: three priorities of 20 projects
_MILLION = {"rows": (1_000, 4, 1_000), "records": (1_000_000, 120, 1)}
_BARE = """
import sys
from pyspark.sql import SparkSession
from evenlane.spark.source import register
spark = SparkSession.builder.master("local[*]").getOrCreate()
register(spark)
print(spark.read.format("evenlane").options(nats=sys.argv[1]).load().count())
spark.stop()
"""


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Run a command. Return its seconds, and the CPU seconds of it and its children. Raises CalledProcessError."""
    began, spent = time.monotonic(), {}
    process = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            for each in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = each.cpu_times()
                    spent[each.pid] = times.user + times.system
        time.sleep(0.1)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.monotonic() - began, sum(spent.values())


def compare(url: str, repeat: int) -> dict[str, Any]:
    """Run both in turn."""
    with tempfile.TemporaryDirectory() as folder:
        report = ["-m", "evenlane.spark.jobs.report", "--nats", url, "--out", folder, "--window", "5m"]
        taken: dict[str, list[tuple[float, float]]] = {"bare": [], "report": []}
        for _ in range(repeat):
            taken["bare"].append(timed([sys.executable, "-c", _BARE, url]))
            taken["report"].append(timed([sys.executable, *report]))
    found: dict[str, Any] = {}
    for name, runs in taken.items():
        found[f"{name}_s"] = round(statistics.median(each for each, _ in runs), 1)
        found[f"{name}_all_s"] = [round(each, 1) for each, _ in runs]
        found[f"{name}_cpu_s"] = round(statistics.median(each for _, each in runs), 1)
    return found | {"ratio": round(found["report_s"] / found["bare_s"], 2)}


def warm(url: str, repeat: int, *, archive: bool) -> dict[str, Any]:
    """Make reports of the same records in one session; the first isn't counted."""
    from evenlane.spark.jobs.report import make  # noqa: PLC0415 - they bring Spark
    from evenlane.spark.jobs.request import ReportRequest  # noqa: PLC0415
    from evenlane.spark.session import session  # noqa: PLC0415

    taken: list[float] = []
    steps: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, session("report time", master="local[2]") as spark:
        stored = str(Path(folder) / "archive") if archive else None
        wanted = ReportRequest(
            Path(folder) / "report", "online", {"nats": url}, archive=stored, cache=Path(folder) / "cache"
        )
        for _ in range(1 + repeat):
            steps.clear()
            began = time.monotonic()
            make(spark, wanted, lambda what, _: steps.append((what, time.monotonic())))
            steps.append(("", time.monotonic()))
            taken.append(steps[-1][1] - began)
    times = {what: round(end - start, 1) for (what, start), (_, end) in pairwise(steps)}
    return {"first_s": round(taken[0], 1), "warm_s": round(statistics.median(taken[1:]), 1), "steps": times}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    records, nodes, queues = _MILLION.get(options.million, _SMALL)
    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer(Path(folder) / "nats", fast=True)
        await server.start()
        try:
            began = int(time.time()) - (records // nodes - 1) * _INTERVAL_S
            loaded = await load(
                server.url, records, queues, nodes=nodes, began=began, own_tenants=nodes > 1, ends_now=True
            )
            work = partial(warm, archive=options.archive) if options.million else compare
            found = await asyncio.to_thread(work, server.url, options.repeat)
        finally:
            await server.stop()
    return {"records": records, "rows": loaded.rows, "cores": os.cpu_count(), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--million", choices=_MILLION)
    parser.add_argument("--archive", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.archive and not options.million:
        parser.error("--archive is for --million")
    found = uvloop.run(run(options))
    if options.json:
        json.dump(found, sys.stdout)
        return
    for name, value in found.items():
        print(f"{name:14} {value}")
    name, bar = ("warm_s", BAR_MILLION_S) if options.million else ("ratio", BAR)
    print(f"at most {bar:g}: {'ok' if found[name] <= bar else 'MISSED'}")


if __name__ == "__main__":
    main()
