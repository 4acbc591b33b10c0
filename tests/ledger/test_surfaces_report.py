"""Known loads on nodes that join late and stop half-way: surfaces and report show what the ledger has counted."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from evenlane.engine.base.clock import now_ns
from tests.ledger.cli import evenlane
from tests.ledger.cluster import ProcessCluster
from tests.ledger.flow_loads import FlowLedger, RunningLoads
from tests.ledger.surface_statuses import DELETED, STATUSES, Deletion, expected_of
from tests.ledger.surface_world import LOADS, SECOND, SurfaceWorld
from tests.ledger.surfaces import Surfaces
from tests.support.figures import Figures, different_counts
from tests.support.status_words import Described, different_words, statuses_of
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.ledger.process import NodeProcess
    from tests.ledger.surfaces import Seen

pytestmark = [pytest.mark.real, pytest.mark.full]

_SOME_FAIL = "# % of its attempts fail, #/s of #/s"  # records have no errors but those of dead letters
_LISTED = {
    **{name: STATUSES[name] for name in ("failing", "brief", "kept", "paused", "due")},
    **{name: STATUSES[name]._replace(sentence=_SOME_FAIL) for name in ("third", "ordered")},
    "deleted": DELETED["deleted"],
}
"""Statuses that a report has as well: of the others, some need nobody's attention, and some depend on when it looks."""
_REPORTED = ("arrived", "first_puts", "handled", "retried", "dead", "expired", "dropped", "attempts")


def reported(spark: SparkSession, cluster: ProcessCluster) -> dict[str, Figures]:
    """Return a report's counts by project, over all its windows."""
    tenants = spark.read.parquet(str(cluster.folder / "report" / "tenants.parquet"))
    last = [F.max_by(name, "window_start").alias(name) for name in ("backlog", "in_flight")]
    sums = [F.sum(name).alias(name) for name in _REPORTED]
    rows = tenants.groupBy("project").agg(*sums, *last).collect()
    return {row.project: {name: float(row[name]) for name in (*_REPORTED, "backlog", "in_flight")} for row in rows}


def wrong_items(cluster: ProcessCluster, seen: Seen) -> list[str]:
    """Return a sentence for each status that a report says in other words than a page does of the known loads, or than
    the page says now of those that still wait.
    """
    items = json.loads((cluster.folder / "report" / "report.json").read_text())["attention"]
    of: dict[str, list[Described]] = {}
    for item in items:
        of.setdefault(item["project"], []).append({**item, "name": item["status"]})
    found = []
    for project, expected in _LISTED.items():
        if not any(expected_of(item, expected) for item in of.get(project, [])):
            found.append(f"{project}: the report has {of.get(project)}, and not {expected}")
    for project in ("paused", "due", "deleted"):
        surfaces = {"page": statuses_of(seen.overview[project]), "report": of.get(project, [])}
        found += [f"{project}: {each}" for each in different_words(surfaces)]
        waiting = f": {seen.overview[project]['backlog']:,} wait"
        found += [f"{project}: {item}" for item in of.get(project, []) if waiting not in item["sentence"]]
    return found


async def test_surfaces_are_right_through_join_and_leave(tmp_path: Path, spark: SparkSession) -> None:
    """X12, X13: rates over half a minute; then a node joins, the first one stops, two topics are deleted, and every
    message is counted once. The report says statuses in the words of the page.
    """
    async with ProcessCluster(tmp_path, lease_ttl=10, meter_interval=1, partitions=4) as cluster:
        [a] = await cluster.start("a", http_port=0)
        await cluster.owned_by(a)
        ledger = FlowLedger(cluster, LOADS)
        async with Surfaces(cluster, [a]) as surfaces:
            shown = SurfaceWorld(cluster, ledger, surfaces)
            await shown.make_topics()
            async with RunningLoads(ledger, await cluster.producer()) as running:
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
                await running.end("gone", "deleted")
                await Deletion(shown).delete()
            await shown.quicken("over", "kept", "drained")
            await shown.at_rest("overview", "why")
            await until(lambda: agree(shown, b), 30, "the metrics to have the ledger's counts")
            assert await evenlane(cluster, "report", "--out", str(cluster.folder / "report"), "--window", "5m")
            assert [] == wrong_items(cluster, await shown.read())
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
