"""Overview document: the contract of `/api/overview` and `evenlane top --json`."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane.engine.admin.overview.document import document
from evenlane.engine.admin.overview.messages import RATES, Band, NodeOverview, ProcessVitals, Rest, Row
from evenlane.ring.membership.records import NodeRecord
from tests.support.overview_answers import NOW, PRIORITIES, answers, cluster, row


def overview_document(cluster, *answers, **fields):
    return document(cluster, answers, NOW, **fields)


def plain_totals(answers):
    """Add up all bands of all answers."""
    rows = [bands for answer in answers for bands in [each.bands for each in answer.rows]]
    rows += [answer.rest.bands for answer in answers if answer.rest is not None]
    return (
        sum(band.backlog for bands in rows for band in bands),
        sum(band.in_flight for bands in rows for band in bands),
        any(band.arriving is None for bands in rows for band in bands),
        any(band.leaving is None for bands in rows for band in bands),
    )


@settings(max_examples=25)
@given(answers(), st.randoms(use_true_random=False), st.integers(0, 5))
def test_totals_are_sums_independent_of_the_order_of_answers(answers, chance: random.Random, most):
    """E7: shown, left-out and total counts agree; nothing is lost or counted twice."""
    whole = overview_document(cluster("a", "b", "c"), *answers, most=most)
    mixed = overview_document(cluster("a", "b", "c"), *chance.sample(answers, len(answers)), most=most)
    assert whole == mixed
    totals, left = whole["totals"], whole["left_out"] or {"projects": 0, "backlog": 0, "in_flight": 0}
    backlog, in_flight, arriving_unknown, leaving_unknown = plain_totals(answers)
    assert (backlog, in_flight) == (totals["backlog"], totals["in_flight"])
    assert (arriving_unknown, leaving_unknown) == (totals["arriving"] is None, totals["leaving"] is None)
    for count in ("backlog", "in_flight"):
        assert totals[count] == sum(tenant[count] for tenant in whole["tenants"]) + left[count]
        for tenant in whole["tenants"]:
            assert tenant[count] == sum(part[count] for part in tenant["priorities"])
        assert totals[count] == sum(node[count] for node in whole["nodes"] if node["answered"])
    assert totals["projects"] == len(whole["tenants"]) + left["projects"]
    assert len(whole["tenants"]) <= most
    json.dumps(whole, allow_nan=False)


@settings(max_examples=25)
@given(answers())
def test_busiest_projects_come_first(answers):
    """X13: but projects that fail or expire come before them, as they may have no backlog."""
    shown = overview_document(cluster("a", "b", "c"), *answers)["tenants"]
    ranks = [
        (
            not (tenant["failed"] or tenant["expired"]),
            -tenant["backlog"],
            -(tenant["leaving"] or 0.0),
            tenant["project"],
        )
        for tenant in shown
    ]
    assert sorted(ranks) == ranks
    assert {row.project for answer in answers for row in answer.rows} == {tenant["project"] for tenant in shown}


def test_project_on_two_nodes_is_added_up():
    """Counts, rates and quotas add up; the greatest age and forecast count, and the newest topic."""
    mine = Band(4, 1, 9.0, 2.0, 1.0, 4.0, False, {"quota": 2}, 0.5, 0.25, 0.125, 0.25)
    one = Row("acme", [Band(), mine, Band()], 5, "paused", 100.0, 60.0)
    theirs = Band(3, 2, 5.0, 1.0, 1.5, 8.0, False, {"fairness": 1}, 1.0, 0.5, 0.0, 0.0)
    other = Row("acme", [Band(), theirs, Band()], 4, "active", 90.0, 40.0)
    (tenant,) = overview_document(cluster("a", "b"), NodeOverview("a", [one]), NodeOverview("b", [other]))["tenants"]
    rates = {"arriving": 3.0, "leaving": 2.5, "handled": 1.5, "failed": 0.75, "dead": 0.125, "expired": 0.25}
    assert {
        "project": "acme", "state": "paused", "deleted": False, "qps": 100.0, "quota_now": 100.0, "backlog": 7,
        "oldest_seconds": 9.0, "in_flight": 3, **rates, "reason": "quota", "also": [],
    } == {key: value for key, value in tenant.items() if key not in {"priorities", "status"}}  # fmt: skip
    assert "paused" == tenant["status"]["name"]
    high, mid, low = tenant["priorities"]
    assert {
        "priority": "mid", "backlog": 7, "oldest_seconds": 9.0, "in_flight": 3, **rates,
        "reason": "quota", "reasons": {"fairness": 1, "quota": 2}, "gone_in_seconds": 8.0, "never_gone": False,
    } == mid  # fmt: skip
    assert ("high", None, None, {}, 0.0) == (
        high["priority"], high["oldest_seconds"], high["reason"], high["reasons"], high["gone_in_seconds"],
    )  # fmt: skip
    assert "low" == low["priority"]


def test_deleted_topic_is_marked():
    """By any node that has seen the deletion, which leaves the revision of the spec unchanged."""
    bands = [Band(), Band(4), Band()]
    seen = Row("acme", bands, 5, "paused", 100.0, 60.0, deleted=True)
    for other in (Row("acme", bands, 5, "active", 100.0, 60.0), Row("acme", bands, 4, "active", 90.0, 60.0)):
        (tenant,) = overview_document(cluster("a", "b"), NodeOverview("a", [other]), NodeOverview("b", [seen]))[
            "tenants"
        ]
        assert ("paused", True) == (tenant["state"], tenant["deleted"])
    (tenant,) = overview_document(
        cluster("a"), NodeOverview("a", [Row("acme", bands, 6, "paused", 9.0)]), NodeOverview("b", [seen])
    )["tenants"]
    assert not tenant["deleted"]


def test_document_has_the_fields_of_the_contract():
    """Page and CLI rely on these names."""
    vital = ProcessVitals(7, 64, 6.8, 0.01, 0.004)
    rest = Rest(2, [Band(1), Band(2), Band()])
    one = cluster("w-0", nodes={"w-0": NodeRecord(host="h", version="2", http="http://127.0.0.1:1", cpu=0.31, at=1.0)})
    whole = overview_document(one, NodeOverview("w-0", [row("acme", backlog=4)], rest, vital))
    assert set(whole) == {
        "env", "at", "priorities", "tenants", "left_out", "nodes", "partitions", "unowned", "totals", "notes",
    }  # fmt: skip
    assert ("online", "2027-01-15T08:00:00.000Z", [*PRIORITIES]) == (whole["env"], whole["at"], whole["priorities"])
    (node,) = whole["nodes"]
    assert {
        "id": "w-0", "answered": True, "http": "http://127.0.0.1:1", "host": "h", "version": "2", "leader": True,
        "partitions": [*range(8)], "generation": 7, "backlog": 7, "in_flight": 0, "slots": 64, "arriving": 0.0,
        "leaving": 0.0, "handled": 0.0, "failed": 0.0, "dead": 0.0, "expired": 0.0, "cpu": 0.31, "lease_seconds": 6.8,
        "loop_lag_seconds": 0.004, "settle_lag_seconds": 0.01,
        "troubles": {},
    } == node  # fmt: skip
    left = whole["left_out"]
    assert {"projects", "backlog", "in_flight", "priorities", *RATES} == set(left)
    assert (2, 3, [1, 2, 0]) == (left["projects"], left["backlog"], [part["backlog"] for part in left["priorities"]])
    assert {"projects": 3, "backlog": 7, "in_flight": 0, **dict.fromkeys(RATES, 0.0)} == whole["totals"]
    assert (8, [], []) == (whole["partitions"], whole["unowned"], whole["notes"])


def test_silent_node_has_null_figures_and_a_note():
    whole = overview_document(cluster("a", "b"), NodeOverview("a", [row("acme", backlog=4)]))
    silent = whole["nodes"][1]
    assert (False, "host", [1, 3, 5, 7]) == (silent["answered"], silent["host"], silent["partitions"])
    unknown = {"generation", "backlog", "in_flight", "slots", "arriving", "leaving", "lease_seconds"}
    unknown |= {"loop_lag_seconds", "settle_lag_seconds"}
    assert {None} == {silent[key] for key in unknown}
    assert ["node b did not answer: its figures are missing"] == whole["notes"]
    assert 4 == whole["totals"]["backlog"]


def test_node_between_two_sessions_has_no_process_stats():
    (node,) = overview_document(cluster("a"), NodeOverview("a"))["nodes"]
    assert (True, 0, None, None) == (node["answered"], node["backlog"], node["slots"], node["lease_seconds"])


@pytest.mark.parametrize(
    ("fields", "names", "note"),
    [
        ({"leader": None}, "a", "no node is the leader: until one is, nothing is planned"),
        ({"owners": {0: "a"}}, "a", "7 of 8 partitions have no owner: their backlog isn't known"),
        (
            {},
            "",
            "no node is running in environment 'online': `evenlane run --handler MODULE:FUNCTION --env online` starts",
        ),
        (
            {},
            "abcdefghijklmn",
            "nodes b, c, d, e, f, g, h, i, j, k and 3 more did not answer: their figures are",
        ),
    ],
)
def test_missing_leader_owners_or_answers_are_notes(fields, names, note):
    (only_note,) = overview_document(cluster(*names, **fields), *([NodeOverview("a")] if names else []))["notes"]
    assert only_note.startswith(note)


def test_backlog_that_is_still_read_is_a_note():
    notes = overview_document(cluster("a", "b"), NodeOverview("b", reading=1), NodeOverview("a", reading=4))["notes"]
    assert ["node a is still reading the backlog of 4 partitions: more may wait there than is reported"] == notes[:1]
    assert notes[1].startswith("node b is still reading the backlog of a partition:")


def test_shown_project_that_may_be_in_another_nodes_rest_is_a_note():
    """Without other nodes, or if all projects have rows, there is no note."""
    rest = Rest(3, [Band(1), Band(), Band()])
    one, other = NodeOverview("a", [row("acme", backlog=4)]), NodeOverview("b", [row("bolt", backlog=1)], rest)
    (note,) = overview_document(cluster("a", "b"), one, other)["notes"]
    assert note.startswith("node b counts its least busy projects together: a project shown here may have more")
    assert [] == overview_document(cluster("b"), other)["notes"]
    whole = [row("acme"), row("bolt")]
    assert [] == overview_document(cluster("a", "b"), NodeOverview("a", whole), NodeOverview("b", whole, rest))["notes"]


def test_project_without_a_topic_has_no_quota():
    (tenant,) = overview_document(cluster("a"), NodeOverview("a", [row("acme", backlog=1, quota=3.0)]))["tenants"]
    assert (None, None, None) == (tenant["state"], tenant["qps"], tenant["quota_now"])


def test_trouble_of_a_node_is_a_note():
    """F1: on the page and in `top`, also if the node doesn't answer."""
    nodes = {"a": NodeRecord(troubles={"blocked": "has been blocked for 12 s by jobs.py:41"}), "b": NodeRecord()}
    seen = overview_document(cluster("a", nodes=nodes), NodeOverview("b"))
    assert "node a has been blocked for 12 s by jobs.py:41" in seen["notes"]
    assert [{"blocked": "has been blocked for 12 s by jobs.py:41"}, {}] == [node["troubles"] for node in seen["nodes"]]
