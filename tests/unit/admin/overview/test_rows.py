"""Rows of a node's overview, built from its sampling rounds."""

import math

import msgspec
import pytest

from evenlane.engine.admin.overview.messages import Band, NodeOverview, ProcessVitals, Rest
from evenlane.engine.admin.overview.rows import NodeReading, choose_projects, encode_rows, snapshot
from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.engine.telemetry.node_health import Condition
from evenlane.engine.telemetry.tenants.backlog import TenantBacklog
from evenlane.quota.topics.topic import accept, delete
from tests.support.tenant_rounds import NOW, SECOND, go_round, look, tenants, topic

CONDITION = Condition(
    True, 7, 8, {}, 0.1, 6.8, 0.02, 3, 0, 1, 64, 1, 2, 0, True, 0.0041, 1, {}
)  # fmt: skip


def rounds(*looks, most=10, took=1.0, **fields):
    """Return the registry after four rounds, one second apart."""
    known = tenants(most)
    for second in range(4):
        now = [each._replace(flow=each.flow._replace(arrived=each.flow.arrived * second)) for each in looks]
        go_round(known, second, *now, took=took, **fields)
    return known


def overview_of(known, most_bytes=10**6, condition=None, topics=lambda _: None) -> NodeOverview:
    return msgspec.json.decode(encode_rows("a", snapshot(known), condition, topics, most_bytes), type=NodeOverview)


def test_row_by_hand():
    """E7: backlog and rates by priority, and the topic's present quota."""
    known = rounds(
        look(backlog=5, reason="quota", head_at=NOW - 3 * SECOND, flow=(10,)),
        look(band=2, backlog=2, reason="higher_priority", head_at=NOW - 9 * SECOND),
        in_flight={("acme", 1): 2},
        part=0.5,
    )
    accepted = accept(topic(qps=80.0), 4, None)
    answer = overview_of(known, condition=CONDITION, topics={"acme": accepted}.get)
    (row,) = answer.rows
    assert ("acme", 4, "active", 80.0, 50.0) == (row.project, row.revision, row.state, row.qps, row.quota)
    high, mid, low = row.bands
    assert Band() == high
    assert (5, 2, 3.0, {"quota": 1}) == (mid.backlog, mid.in_flight, mid.oldest_s, mid.reasons)
    assert (10.0, 0.0) == (mid.arriving, mid.leaving)
    assert (2, 9.0, {"higher_priority": 1}) == (low.backlog, low.oldest_s, low.reasons)
    assert ProcessVitals(7, 64, 6.8, 0.02, 0.0041) == answer.vital
    assert answer.rest is None


@pytest.mark.parametrize(
    ("empty_in", "gone", "never"), [(None, None, False), (4.2, 4.2, False), (math.inf, None, True)]
)
def test_never_and_unknown_are_distinct(empty_in, gone, never):
    tenant_backlog = TenantBacklog()
    tenant_backlog.backlog, tenant_backlog.empty_in = 1, empty_in
    ((_, (band,)),), _ = choose_projects(NodeReading(1, {("acme", 0): tenant_backlog}, {}, 0), 10)
    assert (gone, never, None, None) == (band.gone_s, band.never, band.arriving, band.oldest_s)


def test_deleted_topic_is_marked():
    accepted = delete(accept(topic(qps=80.0), 4, None))
    (row,) = overview_of(rounds(look(backlog=5, reason="paused")), topics={"acme": accepted}.get).rows
    assert ("paused", True) == (row.state, row.deleted)


def test_project_without_a_topic_has_no_quota():
    answer = overview_of(rounds(look(backlog=1, reason="paused"), topics=lambda _: None))
    (row,) = answer.rows
    assert (None, None, None, 0) == (row.state, row.qps, row.quota, row.revision)


def test_node_without_any_data_answers():
    """It is on standby, or has just started."""
    assert NodeOverview("a") == overview_of(tenants())


@pytest.mark.parametrize("most", [10, 2, 0])
def test_projects_without_a_row_are_in_the_rest(most):
    """No message is lost, whatever has a label."""
    looks = [look(f"p{number}", backlog=number, head_at=NOW) for number in range(1, 6)]
    known = rounds(*looks, most=most)
    answer = overview_of(known)
    rest = answer.rest or Rest(0, [Band()] * 3)
    assert 15 == sum(row.bands[1].backlog for row in answer.rows) + rest.bands[1].backlog
    assert (min(most, 5), max(0, 5 - most)) == (len(answer.rows), rest.projects)
    assert {True} >= {band.gone_s is None for band in rest.bands} or not rest.projects


def test_busiest_projects_have_rows():
    """By backlog, then by leaving rate, then by name."""
    looks = [
        look(name, backlog=count, head_at=NOW) for name, count in [("b", 1), ("a", 1), ("c", 5), ("d", 0), ("e", 2)]
    ]
    known = rounds(*looks)
    rows, rest = choose_projects(snapshot(known), 3)
    assert ["c", "e", "a"] == [project for project, _ in rows]
    assert (2, 1) == (rest.projects, rest.bands[1].backlog)


def crowded(labels, bands=8):
    """A reading with long names, all figures and every reason."""
    table = {}
    for number in range(labels):
        for band in range(bands):
            tenant_backlog = table[f"{number:05}" + "x" * 59, band] = TenantBacklog()
            tenant_backlog.backlog, tenant_backlog.in_flight, tenant_backlog.age_s = 10**9 + number, 10**4, 123_456.789
            tenant_backlog.empty_in, tenant_backlog.reasons = 987_654.321, dict.fromkeys(REASONS, 1_000)
    return NodeReading(bands, table, {}, 0)


def test_largest_answer_fits_into_a_message():
    """NATS takes 1 MB by default; 2,000 labels in 8 priorities with all fields stay far below it."""
    seen = crowded(2_000)
    body = encode_rows("n" * 64, seen, CONDITION, lambda _: accept(topic(), 1, None), 400_000)
    assert 100_000 < len(body) <= 400_000
    answer = msgspec.json.decode(body, type=NodeOverview)
    assert 2_000 == len(answer.rows) + answer.rest.projects
    assert seen.table.keys() >= {(row.project, 0) for row in answer.rows}
    total = sum(tenant_backlog.backlog for tenant_backlog in seen.table.values())
    assert total == sum(band.backlog for row in answer.rows for band in row.bands) + sum(
        band.backlog for band in answer.rest.bands
    )


def test_answer_is_small_for_a_small_payload_limit():
    body = encode_rows("a", crowded(20), None, lambda _: None, 300)
    assert 0 == len(msgspec.json.decode(body, type=NodeOverview).rows)
    body = encode_rows("a", crowded(20), None, lambda _: None, 12_000)
    assert 0 < len(msgspec.json.decode(body, type=NodeOverview).rows) < 20
