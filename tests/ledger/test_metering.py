"""Tests of meter records of a cluster whose nodes join, leave and die: their totals are those of the ledger."""

import asyncio
import time
from collections import Counter

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.records.meter_record import decode
from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.expressions import from_arrow
from evenlane.spark.reports.grains import grains
from evenlane.spark.reports.node_records import count_records
from evenlane.spark.reports.quality import quality
from evenlane.spark.reports.schemas import ENDED
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import sum_uncounted, tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import DEAD
from tests.ledger.cluster import ProcessCluster
from tests.ledger.meter import meter_bodies
from tests.ledger.puts import some
from tests.support.meter_totals import Totals, rows, totals
from tests.support.until import until

pytestmark = pytest.mark.real

EVERY_S = 0.5
LATE_NS = 3_000_000_000  # between a handler's entry and the node's own count; over a second on a busy machine


def ended(cluster: ProcessCluster) -> Counter[str]:
    """By the ledger: attempts that succeeded, that are retried, and that became dead letters."""
    found = Counter[str]()
    for entry in cluster.entries():
        if entry.what == "ok":
            found["handled"] += 1
        elif entry.what == "fail":
            found["dead" if "rejected" in entry.id else "retried"] += 1
    return found


async def in_the_end(cluster: ProcessCluster, expected: Totals) -> Totals:
    """Wait until the records have these totals."""
    found: list[Totals] = []

    async def reported_totals() -> bool:
        found[:] = [totals(rows(await meter_bodies(cluster)))]
        now = found[0]
        return (now.arrived, now.waiting) == (expected.arrived, expected.waiting) and all(
            now.ended[what] == count for what, count in expected.ended.items()
        )

    await until(reported_totals, 60, f"the records to have {expected}, and not {found}")
    return found[0]


async def all_reported(cluster: ProcessCluster, node: str) -> None:
    """Wait until a node has reported everything that has happened by now."""
    since = time.time_ns()

    async def reported_totals() -> bool:
        records = [decode(body) for body in await meter_bodies(cluster)]
        return any(each.node == node and each.at - each.span > since for each in records)

    await until(reported_totals, 60, f"{node} to report all")


async def busy(cluster: ProcessCluster, name: str, *moves) -> int:
    """Run a load with retries and dead letters before and after each move. Return the number of dead letters."""
    producer = await cluster.producer()
    dead = 0
    async with cluster.load() as load:
        for number, move in enumerate(moves):
            await load.reaches_all()
            for project in cluster.projects[:4]:
                await cluster.put(producer, some(project, f"{name}-{number}-retried", 3, order="fail 1"))
                await producer.put_many(some(project, f"{name}-{number}-rejected", 2, order="reject"))
                dead += 2
            await move
            await load.reaches_all()
    await until(
        lambda: len([each for each in cluster.ids("fail") if f"{name}-" in each and "rejected" in each]) == dead
    )
    return dead


async def test_totals_match_the_ledger_through_join_and_leave(tmp_path):
    """E11: each message that was put, handled, retried or dead-lettered is counted once, whatever its owners."""
    async with ProcessCluster(tmp_path, meter_interval=EVERY_S, lease_ttl=10) as cluster:
        a, b = await cluster.start("a", "b")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(a, b)
        c = cluster.add_node(name="c")

        async def join():
            await c.start()
            await cluster.owned_by(a, b, c)

        async def leave():
            await a.stop()
            await cluster.owned_by(b, c)

        dead = await busy(cluster, "moving", join(), leave())
        ledger = ended(cluster)
        put = len(cluster.acknowledged) + dead
        expected = Totals(put + ledger["retried"], ledger, 0, Counter(), set())
        found = await in_the_end(cluster, expected)
        assert set() == found.unclosed
        assert found.ended["attempts"] == sum(found.waits.values()) == sum(ledger.values())


@pytest.mark.parametrize("by", ["records", pytest.param("report", marks=pytest.mark.full)])
async def test_totals_miss_only_the_last_interval_of_a_killed_node(tmp_path, request, by):
    """E11: only messages that the node handled after its last record are missing. Records and report name the node and
    its partitions. (Reports of killed nodes without real ones: tests/spark/reports/test_totals.py.)
    """
    async with ProcessCluster(tmp_path, meter_interval=EVERY_S) as cluster:
        a, b = await cluster.start("a", "b")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(a, b)
        owned: set[int] = set()

        async def kill():
            owned.update(cluster.history.owned("a"))
            await all_reported(cluster, "a")
            await a.kill()
            await cluster.owned_by(b)

        await busy(cluster, "killed", kill())
        ledger = ended(cluster)
        await all_reported(cluster, "b")
        found = rows(await meter_bodies(cluster))
        reported_totals = totals(found)
        last = max(row.at for row in found if row.node == "a") - (time.time_ns() - now_ns()) - LATE_NS
        late = [each for each in cluster.entries() if (each.pid, each.what) == (a.pid, "ok") and each.at > last]
        assert 0 <= ledger["handled"] - reported_totals.ended["handled"] <= len(late)
        assert 0 == reported_totals.waiting
        assert set() != reported_totals.unclosed <= {("a", number) for number in owned}
        if by == "records":
            return
        spark = request.getfixturevalue("spark")
        tenants, quality = await asyncio.to_thread(reported, spark, cluster)
        assert set(cluster.projects) == {row.project for row in tenants}
        for what in (*ENDED, "attempts"):
            assert reported_totals.ended[what] == sum(row[what] for row in tenants), what
        assert reported_totals.arrived == sum(row.arrived - row.uncounted for row in tenants)
        assert [] == [row for row in tenants if row.backlog + row.in_flight]
        assert reported_totals.unclosed == {
            (each["node"], each["partition"]) for row in quality for each in row["killed"]
        }
        assert any("a ended without a last word" in row["sentence"] for row in quality)


def reported(spark, cluster):
    """The report: rows of all tenants, and rows of data quality."""
    folder = Folder(spark, str(cluster.folder / "report"))
    meter = spark.read.format("evenlane").options(nats=cluster.servers.nats.url).load()
    known = folder.keep_grains(grains(meter, SPANS["1d"].grain_s), "grains")
    timeline, span = find_timeline(known), SPANS["1d"]
    found = folder.keep(tenants(known, timeline, spark.createDataFrame([], DEAD), span), "tenants")
    uncounted = sum_uncounted(from_arrow(found.toArrow()).lazy())
    return found.collect(), quality(count_records(known, span.window_s), timeline, uncounted, span).to_pylist()
