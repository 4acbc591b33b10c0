"""Benchmark of the whole report over many meter rows, with bounded memory. It also finds steps for a single task.

    python -m benchmarks.report_scale [--rows 10000000] [--queues 3000] [--memory 1g] [--cores 2] [--json]

Spark itself generates the rows (nodes, queues, waits; a record every 10 s), so that only the report is measured: it is
reduced to grains, kept on disk, then the tenants' rows are written, and what a page shows of them is computed. The
memory is the peak RSS of the JVM, of the largest Python worker, and of this process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from evenlane.spark.schemas import COUNTERS, DEAD, METER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVAL_S = 10
NODES = 4
PROJECTS = 300
BEGAN = 1_767_225_600  # unix s


def generate(spark: SparkSession, rows: int, queues: int) -> DataFrame:
    """Rows of METER: each queue of a node in each record. Counters grow evenly, backlogs swing."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from evenlane.spark.reports.columns import shape  # noqa: PLC0415

    tick, queue = F.expr(f"id div {queues}"), F.col("id") % queues
    at = F.timestamp_seconds(F.lit(BEGAN) + F.col("tick") * INTERVAL_S)
    known = {
        "tick": tick, "queue": queue, "sequence": tick, "stored": at, "at": at, "number": tick + 1, "after": tick,
        "node": F.concat(F.lit("node-"), F.col("queue") % NODES), "partition": F.col("queue") % (32 * NODES),
        "project": F.concat(F.lit("tenant-"), F.col("queue") % PROJECTS), "group": F.lit(0),
        "priority": F.element_at(F.array(*map(F.lit, ("high", "mid", "low"))), F.expr("int(queue div 300 % 3 + 1)")),
        "run": F.lit(1), "epoch": F.lit(1), "since": F.timestamp_seconds(F.lit(BEGAN)), "closed": F.lit(False),
        "span_s": F.lit(10.0), "slots": F.lit(64), "qps": F.lit(50.0), "may_use": F.lit(50.0), "weight": F.lit(50.0),
        "fairness": F.lit(1.0), "backlog": F.expr("(tick + queue) % 50"),
        "oldest_s": F.expr("double((tick + queue) % 90)"),
        "in_flight": F.lit(1), "longest_s": F.lit(5.0), "ran_s": F.expr("tick * 0.5"), "dwelt_s": F.expr("tick * 2.0"),
        "waited_quota_s": F.expr("tick * 3.0"), "waited_fairness_s": F.expr("tick * 1.0"),
        **dict.fromkeys(COUNTERS, F.expr("tick * 4")),
        "waits": F.expr("array(named_struct('bucket', int(queue % 60), 'count', tick * 2), "
                        "named_struct('bucket', int(queue % 60 + 8), 'count', tick * 2))"),
    }  # fmt: skip
    made = spark.range(rows)
    for name, column in known.items():
        made = made.withColumn(name, column)
    for name in METER.names:
        if name not in known:
            made = made.withColumn(name, F.lit(None))
    return shape(made, METER)


def funnels(frame: DataFrame) -> list[str]:
    """Steps of the plan that bring rows into one task before they are partly aggregated."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    if "AdaptiveSparkPlan" in plan:
        plan = plan.split("== Initial Plan ==")[-1]
    lines = [re.sub(r"^[\s:+\-*()\d]*", "", line) for line in plan.splitlines()]
    return [
        f"{step} <- {before}"
        for step, before in pairwise(lines)
        if "SinglePartition" in step and "partial_" not in before
    ] + [step for step in lines if step.startswith(("CollectLimit", "CartesianProduct", "TakeOrdered"))]


class Watch(threading.Thread):
    """Measures the peak RSS, in bytes, of the JVM, of the largest other child, and of this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over, self.java, self.python, self.driver = threading.Event(), 0, 0, 0

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.driver = max(self.driver, psutil.Process().memory_info().rss)
            for child in psutil.Process().children(recursive=True):
                try:
                    program, size = Path(child.exe()).name, child.memory_info().rss
                except psutil.Error:
                    continue
                if program == "java":
                    self.java = max(self.java, size)
                else:
                    self.python = max(self.python, size)


def measure(spark: SparkSession, rows: int, queues: int, folder: Path) -> dict[str, object]:
    from evenlane.spark.jobs.folders import Folder  # noqa: PLC0415
    from evenlane.spark.jobs.table_store import store_table  # noqa: PLC0415
    from evenlane.spark.out import place  # noqa: PLC0415
    from evenlane.spark.reports.grains import grains, merge_grains  # noqa: PLC0415
    from evenlane.spark.reports.node_records import count_records  # noqa: PLC0415
    from evenlane.spark.reports.quality import quality  # noqa: PLC0415
    from evenlane.spark.reports.spans import FINEST_S, SPANS  # noqa: PLC0415
    from evenlane.spark.reports.tenants import recommended, sum_uncounted, tenants  # noqa: PLC0415
    from evenlane.spark.reports.timeline import find_timeline  # noqa: PLC0415

    began, found = time.monotonic(), {}
    reduced = grains(generate(spark, rows, queues), FINEST_S, behind=())
    plans = [funnels(each) for each in reduced]
    kept = Folder(spark, place.url(folder))
    known = kept.keep_grains(reduced, "grains")
    found["grains_s"] = round(time.monotonic() - began, 1)
    for name, span in SPANS.items():
        begun = time.monotonic()
        longer = span.grain_s > FINEST_S
        merged = kept.keep_grains(merge_grains(known, span.grain_s), f"{name}/grains") if longer else known
        timeline = find_timeline(merged)
        made = tenants(merged, timeline, spark.createDataFrame([], DEAD), span)
        plans.append(funnels(made))
        rows = store_table(made, folder / f"tenants-{name}", few=False)
        quality(count_records(merged, span.window_s), timeline, sum_uncounted(rows), span)
        recommended(rows).collect()
        found[f"tenants_{name}_s"] = round(time.monotonic() - begun, 1)
    found["all_s"] = round(time.monotonic() - began, 1)
    return {"rows": rows, **found, "funnels": [step for plan in plans for step in plan]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--queues", type=int, default=3_000)
    parser.add_argument("--memory", default="1g", help="of the driver, the only JVM here")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {options.memory} pyspark-shell"
    from evenlane.spark.session import session  # noqa: PLC0415 - the memory must be set before Java starts

    watch = Watch()
    with tempfile.TemporaryDirectory() as folder, session("report scale", master=f"local[{options.cores}]") as spark:
        watch.start()
        found = measure(spark, options.rows, options.queues, Path(folder))
        watch.over.set()
    found |= {"java_rss_mb": watch.java >> 20, "python_rss_mb": watch.python >> 20, "driver_rss_mb": watch.driver >> 20}
    if options.json:
        json.dump(found, sys.stdout)
    else:
        for name, value in found.items():
            print(f"{name:14} {value}")


if __name__ == "__main__":
    main()
