"""Known loads on nodes that join late and stop half-way: surfaces and report show what the ledger has counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from evenlane.engine.base.clock import now_ns
from evenlane.spark.jobs.report import ReportRequest, make
from tests.ledger.cluster import ProcessCluster
from tests.ledger.flow_loads import FlowLedger, RunningLoads
from tests.ledger.surface_world import LOADS, SECOND, SurfaceWorld
from tests.ledger.surfaces import Surfaces
from tests.support.figures import Figures, different_counts
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.ledger.process import NodeProcess

pytestmark = [pytest.mark.real, pytest.mark.full]

_REPORTED = ("arrived", "first_puts", "handled", "retried", "dead", "expired", "dropped", "attempts")


def reported(spark: SparkSession, cluster: ProcessCluster) -> dict[str, Figures]:
    """Return a report's counts by project, over all its windows."""
    out = cluster.folder / "report"
    wanted = ReportRequest(out, "online", {"nats": cluster.servers.nats.url}, window="5m")
    make(spark, wanted, lambda _step, _share: None)
    tenants = spark.read.parquet(str(out / "tenants.parquet"))
    last = [F.max_by(name, "window_start").alias(name) for name in ("backlog", "in_flight")]
    sums = [F.sum(name).alias(name) for name in _REPORTED]
    rows = tenants.groupBy("project").agg(*sums, *last).collect()
    return {row.project: {name: float(row[name]) for name in (*_REPORTED, "backlog", "in_flight")} for row in rows}


async def test_surfaces_are_right_through_join_and_leave(tmp_path: Path, spark: SparkSession) -> None:
    """X12: rates over half a minute; then a node joins, the first one stops, and every message is counted once."""
    async with ProcessCluster(tmp_path, lease_ttl=10, meter_interval=1, partitions=4) as cluster:
        [a] = await cluster.start("a", http_port=0)
        await cluster.owned_by(a)
        ledger = FlowLedger(cluster, LOADS)
        async with Surfaces(cluster, [a]) as surfaces:
            shown = SurfaceWorld(cluster, ledger, surfaces)
            await shown.make_topics()
            async with RunningLoads(ledger, await cluster.producer()):
                await until(lambda: len(ledger.puts["steady"]) >= 150, 60, "three seconds of the loads")
                await shown.make_topics(weight=2)
                changed = now_ns()
                await until(lambda: ledger.puts["steady"][-1].arrives - changed > 35 * SECOND, 120, "half a minute")
                seen = await shown.measured(25)
                assert "" == "; ".join(shown.wrong_rates(seen))
                assert "" == "; ".join(shown.wrong_ages(seen))
                [b] = await cluster.start("b", http_port=0)
                await cluster.owned_by(a, b)
                surfaces.nodes.append(b)
                seen = await shown.measured(5)
                assert "" == "; ".join(shown.wrong_rates(seen))
                surfaces.nodes.remove(a)
                assert 0 == await a.stop()
                await cluster.owned_by(b)
                seen = await shown.measured(5)
                assert "" == "; ".join(shown.wrong_rates(seen))
            await shown.quicken("over", "kept", "drained")
            await shown.at_rest("overview", "why")
            await until(lambda: agree(shown, b), 30, "the metrics to have the ledger's counts")
            found = await asyncio.to_thread(reported, spark, cluster)
            assert {*found} == {*shown.projects} - {"later"}
            wrong = [
                f"{project}: {sentence}"
                for project, figures in found.items()
                for sentence in different_counts(ledger.counts(project), {"report": figures})
            ]
            assert [] == wrong


async def agree(shown: SurfaceWorld, node: NodeProcess) -> bool:
    """Whether a node's metrics have the counts of its handlers."""
    return [] == await shown.wrong_metrics(node)
