"""Metrics page: it parses, is bounded, and its counters never fall (fault 21, X8)."""

import math
from bisect import bisect_left

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parsed

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.troubles import KINDS
from evenlane.engine.control.subscriptions.subscription_monitor import RunningNodes
from evenlane.engine.core.queue.positions import LanePosition
from evenlane.engine.core.stats.histogram import BOUNDS
from evenlane.engine.core.stats.latency import LatencyStats
from evenlane.engine.telemetry import metric_names
from evenlane.engine.telemetry.node_health import Condition
from evenlane.engine.telemetry.prometheus.exposition import page, write_page
from evenlane.engine.telemetry.prometheus.snapshot import Snapshot, of_tenants
from evenlane.engine.telemetry.tenants.flows import TenantFlow
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.node.world import CLUSTER_CONFIG, World, topic
from tests.support.tenant_rounds import NOW, PRIORITIES, SECOND, go_round, look
from tests.support.tenant_rounds import tenants as few
from tests.support.until import until

FLOW = TenantFlow(retried=1, dead=2, expired=3, dropped=4, dwelt=5 * SECOND, ran=6 * SECOND, missing=7)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SUBSCRIPTIONS = (RunningNodes("", "active", 3), RunningNodes("billing", "creating", 0))
REFUSALS = {"wish": 3, "accepted": 1}


CONDITION = Condition(
    leader=True, generation=7, partitions=128, epochs={3: 41, 5: 42}, lease_age_s=1.5, lease_left_s=6.5,
    settle_lag_s=0.25, index_messages=900, payload_bytes=4096, payload_budget=65536, slots=64, slots_busy=3,
    in_flight=4, pending_copies=2, connected=True, loop_lag_s=0.004, projects=12,
    positions={5: LanePosition(end=90, settled=70, purged=60)},
)  # fmt: skip
COUNTERS = {"suspects": 1, "given_up": 2, "void": 3, "missing": 4, "stray": 5, "handled": 6, "ended_blocked_s": 30}


def add(histogram, ns, times=1):
    histogram.counts[bisect_left(BOUNDS, ns)] += times
    histogram.sum += ns * times


def snapshot_of(tenants) -> Snapshot:
    seen = Snapshot("online", "w-1", "0.1.0", counters=COUNTERS, moves={"acquired": 2}, refused=2, refusals=REFUSALS)
    seen = seen._replace(blocked_s=1.75, troubles={"blocked"}, desired_nodes=4, subscriptions=SUBSCRIPTIONS)
    if tenants is None:
        return seen
    times = LatencyStats(3)
    for ns in (0, 1_000_000, 1_000_001, 2 * SECOND):
        add(times.dwell[1], ns)
    add(times.handling[0], 3 * 86_400 * SECOND, 2)
    return seen._replace(
        priorities=PRIORITIES, tenants=of_tenants(tenants), condition=CONDITION,
        dwell=tuple(each.copy_counts() for each in times.dwell),
        handling=tuple(each.copy_counts() for each in times.handling),
    )  # fmt: skip


def read(text, parse=parsed):
    """Return values by (name, labels)."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def value(samples, name, **labels):
    return samples[name, tuple(sorted({"env": "online", **labels}.items()))]


def by_hand():
    known = few(most=1)
    for at in (0, 2):
        go_round(
            known, at,
            look(backlog=6, reason="quota", head_at=NOW - 5 * SECOND, flow=FLOW._replace(arrived=7 + at, handled=at)),
            look(band=2, backlog=3, reason="higher_priority"), look("bolt", backlog=1, reason="paused"),
            in_flight={("acme", 1): 4},
        )  # fmt: skip
    return known


def test_metrics_of_projects_by_hand():
    """X8, X7: with their labels."""
    samples = read(write_page(snapshot_of(by_hand()), "").body.decode())
    acme = {"project": "acme", "priority": "mid"}
    assert 2.0 == value(samples, metric_names.WAITING_SECONDS, **acme, reason="quota")
    assert 12.0 == value(samples, metric_names.WAITING_MESSAGE_SECONDS, **acme, reason="quota")
    assert 1.0 == value(samples, metric_names.WAITING_QUEUES, **acme, reason="quota")
    assert 2.0 == value(samples, metric_names.WAITING_SECONDS, project="other", priority="mid", reason="paused")
    assert (6.0, 4.0, 5.0) == tuple(
        value(samples, name, **acme) for name in (metric_names.BACKLOG, metric_names.IN_FLIGHT, metric_names.OLDEST)
    )
    assert (9.0, 5.0, 6.0, 7.0) == tuple(
        value(samples, name, **acme)
        for name in (
            metric_names.ARRIVED,
            metric_names.TENANT_DWELL,
            metric_names.TENANT_HANDLING,
            metric_names.MISSING_MESSAGES,
        )
    )
    assert {"handled": 2.0, "retried": 1.0, "dead": 2.0, "expired": 3.0, "dropped": 4.0} == {
        outcome: value(samples, metric_names.OUTCOMES, **acme, outcome=outcome) for outcome in metric_names.OUTCOMES_OF
    }
    assert (1.0, 1.0) == tuple(
        value(samples, name, **acme) for name in (metric_names.ARRIVAL_RATE, metric_names.DRAIN_RATE)
    )
    assert 6 / 99 == pytest.approx(value(samples, metric_names.TIME_TO_EMPTY, **acme))  # the quota of 100 is used up
    assert (1.0, 2.0, 2.0) == tuple(
        value(samples, name)
        for name in (metric_names.PROJECTS_LEFT_OUT, metric_names.ROUND, metric_names.TOPICS_REFUSED)
    )
    assert (3.0, 1.0) == tuple(
        value(samples, metric_names.TOPIC_REFUSALS, where=where) for where in ("wish", "accepted")
    )
    assert {"acme": 100.0} == {
        dict(labels)["project"]: qps for (name, labels), qps in samples.items() if name == metric_names.QUOTA
    }
    assert 1.0 == value(samples, metric_names.FAIR_SHARE, project="acme")


def test_positions_of_owned_partitions():
    """E11: of those whose lane the node knows."""
    samples = read(write_page(snapshot_of(by_hand()), "").body.decode())
    names = (metric_names.END_SEQUENCE, metric_names.SETTLED_SEQUENCE, metric_names.PURGED_SEQUENCE)
    assert (90, 70, 60) == tuple(value(samples, name, partition="5") for name in names)
    assert {"3", "5"} == {dict(labels)["partition"] for name, labels in samples if name == metric_names.EPOCH}
    assert {"5"} == {dict(labels)["partition"] for name, labels in samples if name in names}


def test_metrics_of_the_node_by_hand():
    """P2, E7: its partitions, lease and load."""
    samples = read(write_page(snapshot_of(by_hand()), "").body.decode())
    assert 1.0 == value(samples, metric_names.NODE, node="w-1", version="0.1.0")
    assert (1, 7, 128, 2, 1.5, 6.5, 0.25, 900, 4096, 65536, 64, 3, 2, 0.004, 12, 4, 5) == tuple(
        value(samples, name)
        for name in (
            metric_names.LEADER,
            metric_names.GENERATION,
            metric_names.PARTITIONS,
            metric_names.OWNED,
            metric_names.LEASE_AGE,
            metric_names.LEASE_LEFT,
            metric_names.SETTLE_LAG,
            metric_names.INDEX,
            metric_names.PAYLOAD,
            metric_names.PAYLOAD_BUDGET,
            metric_names.SLOTS,
            metric_names.SLOTS_BUSY,
            metric_names.PENDING_COPIES,
            metric_names.LOOP_LAG,
            metric_names.PROJECTS,
            metric_names.MISSING,
            metric_names.STRAY,
        )
    )
    assert (41.0, 42.0) == tuple(value(samples, metric_names.EPOCH, partition=partition) for partition in ("3", "5"))
    assert (2.0, 0.0, 0.0) == tuple(value(samples, metric_names.MOVES, how=how) for how in metric_names.MOVES_OF)
    assert (1.0, 2.0, 3.0) == tuple(
        value(samples, metric_names.DUPLICATES, cause=cause) for cause in metric_names.DUPLICATES_OF
    )
    assert 1.0 == value(samples, metric_names.CONNECTED, server="nats")
    assert (1.75, 30.0) == (value(samples, metric_names.LOOP_BLOCKED), value(samples, metric_names.ENDED_BLOCKED))
    troubles = {kind: value(samples, metric_names.TROUBLE, kind=kind) for kind in KINDS}
    assert dict.fromkeys(KINDS, 0.0) | {"blocked": 1.0} == troubles
    assert 0 < samples["process_resident_memory_bytes", ()]


def test_histograms_by_hand():
    """A bound belongs to its bucket, and values beyond the last bound count."""
    samples = read(write_page(snapshot_of(by_hand()), "").body.decode())
    dwell, handling = metric_names.DWELL, metric_names.HANDLING
    below = {le: value(samples, f"{dwell}_bucket", priority="mid", le=le) for le in ("0.001", "0.0025", "1.0", "2.5")}
    assert {"0.001": 2.0, "0.0025": 3.0, "1.0": 3.0, "2.5": 4.0} == below
    assert (4.0, 4.0) == (
        value(samples, f"{dwell}_bucket", priority="mid", le="+Inf"), value(samples, f"{dwell}_count", priority="mid")
    )  # fmt: skip
    assert 2.002000001 == pytest.approx(value(samples, f"{dwell}_sum", priority="mid"))
    assert (0.0, 2.0) == tuple(
        value(samples, f"{handling}_bucket", priority="high", le=le) for le in ("86400.0", "+Inf")
    )


def test_page_has_exactly_the_known_names():
    """Apart from the standard metrics of a process."""
    samples = read(write_page(snapshot_of(by_hand()), "").body.decode())
    histograms = {
        f"{name}_{part}" for name in (metric_names.DWELL, metric_names.HANDLING) for part in ("bucket", "sum", "count")
    }
    known = {name for name in vars(metric_names).values() if isinstance(name, str) and name.startswith("evenlane_")}
    assert (known - {metric_names.DWELL, metric_names.HANDLING}) | histograms == {
        name for name, _ in samples if not name.startswith("process_")
    }


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_figures_of_a_named_subscription_have_its_name(accept):
    """K10: all but those of the process. The unnamed one has no such label."""
    parse = openmetrics.text_string_to_metric_families if accept else parsed
    unnamed = read(write_page(snapshot_of(by_hand()), accept).body.decode(), parse)
    named = read(write_page(snapshot_of(by_hand())._replace(subscription="audit"), accept).body.decode(), parse)
    own = [(name, dict(labels)) for name, labels in unnamed if name.startswith("evenlane_")]
    assert {metric_names.SUBSCRIPTION_NODES} == {name for name, labels in own if "subscription" in labels}
    assert [(name, {"subscription": "audit", **labels}) for name, labels in own] == [
        (name, dict(labels)) for name, labels in named if name.startswith("evenlane_")
    ]
    assert "subscription" not in str([labels for name, labels in named if name.startswith("process_")])


def test_nodes_of_all_subscriptions_are_counted():
    """K10: the unnamed one has an empty label. Without named ones there is no such metric."""
    samples = read(write_page(snapshot_of(None), "").body.decode())
    name = metric_names.SUBSCRIPTION_NODES
    assert 3.0 == value(samples, name, subscription="", state="active")
    assert 0.0 == value(samples, name, subscription="billing", state="creating")
    assert name not in write_page(snapshot_of(None)._replace(subscriptions=()), "").body.decode()


def test_number_of_nodes_is_there_only_for_an_autoscaler():
    """P10: without the metric an autoscaler keeps the number of replicas."""
    assert 4.0 == value(read(write_page(snapshot_of(None), "").body.decode()), metric_names.DESIRED_NODES)
    without = write_page(snapshot_of(None)._replace(desired_nodes=None), "").body.decode()
    assert metric_names.DESIRED_NODES not in without


def test_openmetrics_has_the_same_content():
    plain, open_ = write_page(snapshot_of(by_hand()), "text/plain"), write_page(snapshot_of(by_hand()), OPENMETRICS)
    assert open_.content_type.startswith("application/openmetrics-text")
    assert plain.content_type.startswith("text/plain")
    assert open_.body.endswith(b"# EOF\n")
    parse = openmetrics.text_string_to_metric_families
    one, other = read(plain.body.decode()), read(open_.body.decode(), parse)
    assert one.keys() == other.keys()
    assert {key: was for key, was in one.items() if key[0].startswith("evenlane_")} == {
        key: was for key, was in other.items() if key[0].startswith("evenlane_")
    }


def test_never_is_infinity_and_unknown_is_left_out():
    known = few()
    go_round(known, 0, look(backlog=6), topics=topic(state="paused"))
    samples = read(write_page(snapshot_of(known), "").body.decode())
    assert not any(
        name in {metric_names.OLDEST, metric_names.TIME_TO_EMPTY} and dict(labels)["priority"] == "mid"
        for name, labels in samples
    )
    go_round(known, 2, look(backlog=6), topics=topic(state="paused"))
    samples = read(write_page(snapshot_of(known), "").body.decode())
    assert math.inf == value(samples, metric_names.TIME_TO_EMPTY, project="acme", priority="mid")


def test_node_that_has_not_joined_has_a_page():
    samples = read(write_page(snapshot_of(None), OPENMETRICS).body.decode(), openmetrics.text_string_to_metric_families)
    assert {metric_names.NODE, metric_names.MISSING, metric_names.TOPICS_REFUSED, metric_names.TOPIC_REFUSALS} <= {
        name for name, _ in samples
    }
    assert not {metric_names.LEASE_LEFT, metric_names.OWNED, metric_names.BACKLOG} & {name for name, _ in samples}


def test_later_round_does_not_change_a_snapshot():
    known = by_hand()
    seen = snapshot_of(known)
    before = own(write_page(seen, "").body)
    known.published.clear()
    go_round(known, 9, look(backlog=1, reason="paused", flow=(99, 9, 9)))
    assert before == own(write_page(seen, "").body)


def own(body):
    """Return the lines of Evenlane's own metrics."""
    return [line for line in body.splitlines() if b"evenlane_" in line]


async def test_labels_are_bounded_and_counters_never_fall_with_500_projects():
    """Fault 21, X8: 20 have a label. Messages arrive, are handled, and leave with a partition."""
    projects = [f"t{number}" for number in range(500)]
    async with World(**dict.fromkeys(projects, topic())) as world:
        for number, project in enumerate(projects):
            await world.put_many(1 + (number < 30) * 4, project=project, priority=CLUSTER_CONFIG.priorities[number % 3])
        node = await world.node()
        await until(lambda: node.queues.projects == 500)
        known, before = TenantRegistry(CLUSTER_CONFIG.priorities, 20, CLUSTER_CONFIG.max_group_qps), {}
        sampler = QueueSampler(node, known)
        for step in range(4):
            await sampler.round(now_ns())
            samples = read(
                (await page(snapshot_of(known), OPENMETRICS)).body.decode(), openmetrics.text_string_to_metric_families
            )
            labels = {dict(labels).get("project") for _, labels in samples} - {None}
            assert len(labels) <= 21
            assert "other" in labels
            assert step == 3 or 480 == value(samples, metric_names.PROJECTS_LEFT_OUT)
            of_tenants = [name for name, labels in samples if "project" in dict(labels)]
            assert len(of_tenants) <= 21 * (3 * 14 + 2) + len(known.waits.seconds) * 3
            for key in before.keys() & samples.keys():
                assert not key[0].endswith("_total") or samples[key] >= before[key]
            before = samples
            if step == 0:
                await until(lambda: len(world.handled) == 620)
            if step == 2:
                node.owned.stop_partition(1)
        assert 620 == sum(
            number
            for (name, labels), number in before.items()
            if name == metric_names.OUTCOMES and dict(labels)["outcome"] == "handled"
        )
