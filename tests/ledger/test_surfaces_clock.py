"""Two nodes, one with a wrong clock: surfaces and report show what the ledger has counted."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cli import evenlane
from tests.ledger.cluster import ProcessCluster
from tests.ledger.flow_loads import FlowLedger, RunningLoads
from tests.ledger.surface_world import LOADS, SECOND, SurfaceWorld
from tests.ledger.surfaces import Surfaces
from tests.ledger.test_surfaces_report import agree as metrics_agree
from tests.ledger.test_surfaces_report import reported
from tests.support.figures import different_counts
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.full]

AHEAD_S = 90
_PROJECTS = ("steady", "burst", "failing", "third", "ordered", "over", "brief", "kept", "paused", "due", "soon")


async def test_surfaces_are_right_with_a_node_whose_clock_is_90_s_ahead(tmp_path: Path, spark: SparkSession) -> None:
    """X12, E11: it owns half of the partitions, and answers for all. Its records have the store's time."""
    async with ProcessCluster(tmp_path, lease_ttl=10, meter_interval=1, partitions=4) as cluster:
        [a] = await cluster.start("a", http_port=0)
        [b] = await cluster.start("b", http_port=0, ahead_s=AHEAD_S)
        await cluster.owned_by(a, b)
        ledger = FlowLedger(cluster, [load for load in LOADS if load.project in _PROJECTS])
        async with Surfaces(cluster, [b, a]) as surfaces:
            shown = SurfaceWorld(cluster, ledger, surfaces)
            await shown.make_topics()
            async with RunningLoads(ledger, await cluster.producer()):
                await until(lambda: len(ledger.puts["steady"]) >= 300, 60, "six seconds of the loads")
                await shown.read()  # rates are measured from the first look: the start of the loads isn't in them
                looked = now_ns()
                # the node that has measured for longest has none of the start in its half minute
                await until(lambda: ledger.puts["steady"][-1].arrives - looked > 35 * SECOND, 120, "half a minute more")
                seen = await shown.measured(25)
                assert "" == "; ".join(shown.wrong_rates(seen))
                assert "" == "; ".join(shown.wrong_ages(seen))
            await shown.quicken("over", "kept")
            await shown.at_rest("overview", "why")
            for node in (a, b):
                await until(partial(metrics_agree, shown, node), 30, "the metrics to have the counts of the handlers")
            assert await evenlane(cluster, "report", "--out", str(cluster.folder / "report"), "--window", "5m")
            found = await asyncio.to_thread(reported, spark, cluster)
            assert [] == [
                f"{project}: {sentence}"
                for project, figures in found.items()
                for sentence in different_counts(ledger.counts(project), {"report": figures})
            ]
            assert {*found} == {*_PROJECTS}
            quality = json.loads((cluster.folder / "report" / "report.json").read_text())["quality"]
            assert [[]] * len(quality) == [each["skewed_nodes"] for each in quality] != []
