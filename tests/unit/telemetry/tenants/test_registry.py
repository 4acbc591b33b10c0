"""Tenant registry of a node: waiting times by reason, counters and forecasts, all bounded (X8, X7)."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.engine.telemetry.tenants.busiest import busiest
from evenlane.engine.telemetry.tenants.flows import TenantFlow
from evenlane.quota.topics.topic import Topic
from tests.support.tenant_rounds import NOW, SECOND, go_round, look, tenants, topic


def waits(tenants):
    return {tuple(key): seconds for key, seconds in tenants.waits.seconds.items()}


# ---- waiting time


def test_waiting_time_is_the_time_since_the_last_round():
    """X8: none at first, then 1 s for the quota, then 3 s for handlers."""
    known = tenants()
    go_round(known, 10, look(backlog=4, reason="quota"))
    assert {} == waits(known)
    go_round(known, 11, look(backlog=4, reason="quota"), look(band=2, backlog=2, reason="higher_priority"))
    go_round(known, 14, look(backlog=7, reason="handlers_busy"), look(band=2))
    assert {("acme", 1, "quota"): 1.0, ("acme", 2, "higher_priority"): 1.0, ("acme", 1, "handlers_busy"): 3.0} == waits(
        known
    )
    messages = {key.reason: seconds for key, seconds in known.waits.message_seconds.items()}
    assert {"quota": 4.0, "higher_priority": 2.0, "handlers_busy": 21.0} == messages
    assert 3.0 == known.round_s


@given(st.lists(st.tuples(st.floats(0.5, 40.0), st.lists(st.sampled_from([None, *REASONS]), max_size=4)), min_size=1))
def test_waiting_time_of_heads_counts_once(rounds):
    """X8: the sum is that of the rounds in which a head was found waiting."""
    known, at, expected = tenants(most=1), 0.0, 0.0
    go_round(known, at)
    for seconds, found in rounds:
        at += seconds
        looks = [look(f"p{n}", 0, 1, reason) for n, reason in enumerate(found)]
        go_round(known, at, *looks)
        expected += seconds * sum(reason is not None for reason in found)
    assert math.isclose(expected, sum(waits(known).values()), rel_tol=1e-6, abs_tol=1e-6)


def test_recent_waiting_time_is_kept_by_project():
    """X8: for 30 to 60 s, with or without a label."""
    known = tenants(most=1)
    for at in range(0, 131, 10):
        go_round(known, at, look("acme", backlog=1, reason="quota"), look("bolt", backlog=1, reason="paused"))
    waited, over_s = known.waits.lately("bolt", 130 * SECOND)
    assert 30 <= over_s <= 60
    assert {(1, "paused"): pytest.approx(over_s, abs=10)} == waited
    assert {} == known.waits.lately("nobody", 130 * SECOND)[0]
    known.clear()
    assert ({}, 0.0) == known.waits.lately("bolt", 130 * SECOND)


# ---- counters


def test_counters_are_sums_over_queues():
    known = tenants()
    go_round(known, 0, look(flow=(5, 2, 1)), look(flow=(1, 0, 0)))
    go_round(known, 1, look(flow=(9, 6, 1)), look(flow=(1, 1, 0)), look(band=0, flow=(3, 0, 0)))
    assert {
        ("acme", 0): TenantFlow(3, 0, 0),
        ("acme", 1): TenantFlow(10, 7, 1),
        ("acme", 2): TenantFlow(),
    } == known.counted


def test_counters_never_fall():
    """X8: a partition leaves with its queues, a session ends, and another one begins."""
    known = tenants()
    go_round(known, 0, look(flow=(5, 2, 1)), look(flow=(100, 90, 0)))
    go_round(known, 1, look(flow=(8, 3, 1)))
    assert TenantFlow(108, 93, 1) == known.counted["acme", 1]
    go_round(known, 2, look(flow=(10, 3, 1)))
    assert TenantFlow(110, 93, 1) == known.counted["acme", 1]
    known.clear()
    assert {} == known.table
    known.published.clear()  # the next session has other queues
    go_round(known, 3, look(flow=(4, 0, 0)))
    assert TenantFlow(114, 93, 1) == known.counted["acme", 1]


def test_failed_round_counts_nothing_twice():
    known = tenants()
    go_round(known, 0, look(flow=(5, 0, 0)))
    known.begin(SECOND)
    known.look(look(flow=(1, 0, 0)))  # the next round counts it
    go_round(known, 2, look(flow=(7, 0, 0)))
    assert TenantFlow(8, 0, 0) == known.counted["acme", 1]


# ---- table


def test_table_by_hand():
    """X8: backlog, age, messages in flight and reasons by priority; an idle priority has zeros."""
    known = tenants()
    lane = LaneId("lanes", 3)
    go_round(
        known, 0,
        look(backlog=4, reason="quota", head_at=NOW - 3 * SECOND), look(backlog=2, reason="quota"),
        look(backlog=1, reason="headroom", place=(lane, 7)), look(backlog=1, place=(lane, 9)),
        look(band=2, backlog=3, reason="paused", place=(LaneId("lanes", 4), 1)),
        in_flight={("acme", 1): 5}, came={(lane, 7): NOW - 8 * SECOND, (LaneId("lanes", 4), 1): None},
    )  # fmt: skip
    mid, low, high = (known.table["acme", band] for band in (1, 2, 0))
    assert (8, 5, 8.0, {"quota": 2, "headroom": 1}) == (mid.backlog, mid.in_flight, mid.age_s, mid.reasons)
    assert (3, 0, None) == (low.backlog, low.in_flight, low.age_s)
    assert (0, 0, 0.0, {}) == (high.backlog, high.in_flight, high.age_s, high.reasons)


def test_ages_are_read_for_the_first_head_of_labelled_projects():
    """Per lane."""
    known = tenants(most=1)
    known.begin(0)
    for sequence in (9, 7, 8):
        known.look(look(backlog=1, place=(LaneId("lanes", 3), sequence)))
    known.look(look("other-one", backlog=1, place=(LaneId("lanes", 4), 1)))
    assert {(LaneId("lanes", 3), 7)} == known.places()


# ---- rates and forecasts


def test_rates_and_time_to_empty_by_hand():
    """X7: 10/s arrive at mid and 4/s at low, 50/s are taken: 400 in high and mid last 10 s, all 762 last 21.2 s."""
    known = tenants()
    for at in (0, 2):
        go_round(
            known, at,
            look(band=0, flow=(0, 0, 0), backlog=100), look(flow=(10 * at, 48 * at, 2 * at), backlog=300),
            look(band=2, flow=(4 * at, 0, 0), backlog=363),
        )  # fmt: skip
    high, mid, low = (known.table["acme", band] for band in range(3))
    assert (10.0, 50.0, 0.0) == (mid.rates.arriving, mid.rates.leaving, low.rates.leaving)
    assert (2.0, 10.0, pytest.approx(763 / 36)) == (high.empty_in, mid.empty_in, low.empty_in)


def test_time_to_empty_without_backlog_or_without_progress():
    known = tenants()
    for at in (0, 2):
        go_round(known, at, look(backlog=5, reason="paused"), look(band=2), topics=topic(state="paused"))
    assert (math.inf, 0.0) == (known.table["acme", 1].empty_in, known.table["acme", 2].empty_in)


def test_used_up_quota_gives_a_forecast_before_any_message_is_handled():
    """X7: one message in 10 s is half of the topic's rate, this node's share."""
    known = tenants()
    for at in (0, 2):
        go_round(known, at, look(backlog=3, reason="quota"), topics=topic(qps=0.2), part=0.5)
    assert 30.0 == pytest.approx(known.table["acme", 1].empty_in)


@pytest.mark.parametrize("event", ["topic", "partitions"])
def test_change_of_topic_or_partitions_restarts_the_measurement(event):
    """X4, X7: rates under the old rules give no forecast."""
    known = tenants()
    for at in range(3):
        go_round(known, at, look(backlog=100, flow=(0, at, 0)), topics=topic(qps=1.0))
    assert 100.0 == known.table["acme", 1].empty_in
    after = topic(qps=50.0) if event == "topic" else topic(qps=1.0)
    if event == "partitions":
        known.measure_again()
    go_round(known, 3, look(backlog=100, flow=(0, 3, 0)), topics=after)
    assert known.table["acme", 1].empty_in is None
    for at in (4, 6):
        go_round(known, at, look(backlog=100, flow=(0, 3 + 50 * (at - 4), 0)), topics=after)
    assert known.table["acme", 1].empty_in == pytest.approx(2.0 if event == "topic" else 100.0, rel=0.6)


def test_rates_are_measured_over_long_rounds():
    known = tenants()
    for at in (0, 40, 80):
        go_round(known, at, look(flow=(at, 0, 0)))
    assert 1.0 == known.table["acme", 1].rates.arriving


def test_rates_of_a_project_at_rest_are_over_the_time_of_its_rest():
    """X12: rounds skip it, but its rates are zero over all that time, up to half a minute."""
    known = tenants()
    known.projects = {"acme"}
    seconds = []
    for at in (0, 1, 2, 12, 100):
        go_round(known, at, *([] if at > 1 else [look(flow=(5, 5))]))
        rates = known.rates_of("acme")
        seconds.append(rates and rates.seconds)
        assert rates is None or 0.0 == rates.arriving == rates.leaving
    assert [None, 1.0] == seconds[:2]
    assert [2.0, 12.0, 30.0] == [pytest.approx(each) for each in seconds[2:]]


def test_rates_are_over_the_time_between_looks():
    """X12: a round that reads from a slow store ends late, and has counted nothing since its look."""
    known = tenants()
    for at, took in ((0, 0.0), (1, 0.0), (2, 0.5), (3, 0.0)):
        go_round(known, at, look(flow=(100 * at, 100 * at)), took=took)
        rates = known.rates_of("acme")
        assert rates is None or (100.0, 100.0) == (rates.arriving, rates.handled)
    assert rates is not None


def test_first_messages_of_a_project_are_in_its_rates():
    """X12: they have arrived since the look before, in which the project was unknown; not so after a takeover."""
    known = tenants()
    go_round(known, 0, look())
    go_round(known, 10, look(), look("bolt", flow=(300, 200)))
    rates = known.rates_of("bolt")
    assert rates is not None
    assert (30.0, 20.0, 10.0) == (rates.arriving, rates.handled, rates.seconds)
    known.measure_again()
    go_round(known, 11, look(), look("bolt", flow=(300, 200)), look("coil", flow=(500,)))
    assert known.rates_of("coil") is None


# ---- bounds


def test_busiest_projects_have_labels_and_keep_them_for_a_while():
    scores = {"a": 10, "b": 9, "c": 5, "other": 99}
    assert {"a", "b"} == busiest(scores, (), 2)
    assert {"a", "c"} == busiest(scores, {"c"}, 2)  # another one must be twice as busy
    assert {"a", "b"} == busiest({**scores, "c": 4}, {"c"}, 2)
    assert set() == busiest(scores, {"a"}, 0)
    assert {"a", "b", "c"} == busiest(scores, (), 10)


def test_project_that_loses_its_label_counts_as_other():
    known = tenants(most=1)
    for at in range(12):
        go_round(known, at, look("small", backlog=1, reason="quota", flow=(at, 0, 0)), look("big", flow=(0, 0, 0)))
    for at in range(12, 24):
        big = look("big", backlog=9_999, reason="paused", flow=(9_999, 0, 0))
        go_round(known, at, look("small", backlog=1, reason="quota", flow=(at, 0, 0)), big)
    assert {"big", "other"} == {label for label, _ in known.table}
    assert {"big", "other"} == {label for label, *_ in waits(known)}
    assert 1 == known.left_out


def test_project_named_other_counts_as_other():
    known = tenants()
    go_round(known, 0, look("other", backlog=3), look("acme", backlog=4))
    assert (3, 1) == (known.table["other", 1].backlog, known.left_out)


def test_time_series_of_ten_thousand_projects_are_bounded():
    """Fault 21."""
    chance, known = random.Random(21), tenants(most=50)
    projects = [f"t{chance.getrandbits(40)}" for _ in range(10_000)]
    flows = dict.fromkeys(projects, 0)
    for at in range(0, 30, 6):
        looks = []
        for project in projects:
            flows[project] += chance.choice((0, 0, 1, 50))
            reason = chance.choice((None, *REASONS))
            looks.append(look(project, chance.randrange(3), chance.randrange(9), reason, (flows[project], 0, 0)))
        go_round(known, at, *looks, topics=None)
        for series in (known.table, known.counted):
            assert len(series) <= 51 * 3
        assert len(known.waits.seconds) <= 51 * 3 * len(REASONS)
        assert len(known.paces) <= 51 * 3
        assert 10_000 - 50 == known.left_out
    assert {"other"} < {label for label, _ in known.table}


def test_topics_are_read_for_labelled_projects_only():
    asked = []
    known = tenants(most=1)

    def of(project) -> Topic | None:
        asked.append(project)
        return None

    go_round(known, 0, look("acme", backlog=5), look("bolt", backlog=1), topics=of)
    assert ["acme"] == asked
