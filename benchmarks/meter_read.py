"""Benchmark of `spark.read.format("evenlane")` for many meter records, warm, on a real nats-server.

    python -m benchmarks.meter_read [--records N] [--queues Q] [--partitions P] [--repeat R] [--json]

A row is a queue of a record, so there are N times Q rows. One query computes count(*) and sum(handled), which must
match the load. Spark reads every column from a data source in Python, whatever the query needs: so each row is decoded
and brought to the JVM with all its columns, the array of waits included. The first read (JVM and workers start, code is
compiled) isn't counted; the figure is the median of the others. Server, JVM and two workers share the machine's cores.
The memory is the peak RSS of the JVM and of the largest Python worker. `cpu_s` is the CPU time of JVM and workers for
one warm read, which says more than the clock on a shared machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import uvloop

from benchmarks.meter_load import Loaded, load
from benchmarks.report_scale import Watch
from evenlane.engine.runtime.embedded.nats import NatsServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAR_S = 15.0
"""For 1 million rows in 4 partitions on 2 cores."""


def once(spark: SparkSession, url: str, partitions: int) -> tuple[float, int, int]:
    """Read once. Return seconds, rows, and the sum of `handled`."""
    began = time.monotonic()
    frame = spark.read.format("evenlane").options(nats=url, partitions=partitions).load()
    [row] = frame.selectExpr("count(*) AS rows", "sum(handled) AS handled").collect()
    return time.monotonic() - began, row.rows, row.handled


def cpu_s() -> float:
    """The CPU time of Spark's processes so far."""
    times = (each.cpu_times() for each in psutil.Process().children(recursive=True))
    return sum(each.user + each.system for each in times)


def reads(url: str, loaded: Loaded, options: argparse.Namespace) -> dict[str, Any]:
    """Read repeatedly, in a process that has only Spark's children."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {options.memory} pyspark-shell"
    from evenlane.spark.session import session  # noqa: PLC0415 - the memory must be set before Java starts

    watch, taken, cpu = Watch(), [], [0.0]
    with session("meter read", master=f"local[{options.cores}]") as spark:
        watch.start()
        for _ in range(1 + options.repeat):
            seconds, *found = once(spark, url, options.partitions)
            assert found == [loaded.rows, loaded.handled], (found, loaded)
            taken.append(seconds)
            cpu.append(cpu_s())
        watch.over.set()
    median = statistics.median(taken[1:])
    return {
        "first_s": round(taken[0], 2), "warm_s": round(median, 2), "warm_all_s": [round(each, 2) for each in taken[1:]],
        "cpu_s": round((cpu[-1] - cpu[1]) / options.repeat, 2), "rows_per_s": round(loaded.rows / median),
        "java_rss_mb": watch.java >> 20, "python_rss_mb": watch.python >> 20,
    }  # fmt: skip


async def run(options: argparse.Namespace) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=context) as pool:
        server = NatsServer(Path(folder) / "nats", fast=True)
        await server.start()
        try:
            began = time.monotonic()
            loaded = await load(server.url, options.records, options.queues)
            load_s = time.monotonic() - began
            found = await asyncio.get_running_loop().run_in_executor(pool, reads, server.url, loaded, options)
        finally:
            await server.stop()
    return {
        "records": options.records, "queues": options.queues, "rows": loaded.rows,
        "record_bytes": loaded.bytes // options.records, "load_s": round(load_s, 1), **found,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--memory", default="1g", help="of the driver, the only JVM here")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = uvloop.run(run(options))
    if options.json:
        json.dump(found, sys.stdout)
        return
    for name, value in found.items():
        print(f"{name:14} {value}")
    if found["rows"] == 1_000_000:
        print(f"at most {BAR_S:g} s: {'ok' if found['warm_s'] <= BAR_S else 'MISSED'}")


if __name__ == "__main__":
    main()
