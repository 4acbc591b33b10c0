"""What a node keeps of its tenants for metrics: time waited by reason, counters, forecasts, bounded (X8, X7)."""

import math
import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.engine.telemetry.tenants.busiest import busiest
from evenlane.engine.telemetry.tenants.flows import Flow
from evenlane.quota.topics.topic import Topic
from tests.support.tenant_rounds import NOW, SECOND, go_round, look, tenants, topic


def waits(tenants):
    return {tuple(key): seconds for key, seconds in tenants.waits.seconds.items()}


# ---- time waited


def test_what_a_head_waits_for_counts_as_long_as_the_round_before_took():
    """X8: by hand: nothing at first, then 1 s for the quota, then 3 s for handlers."""
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
def test_all_time_that_heads_wait_is_there_once(rounds):
    """X8: whatever the queues do, the seconds are those of the rounds in which they were found waiting."""
    known, at, expected = tenants(most=1), 0.0, 0.0
    go_round(known, at)
    for seconds, found in rounds:
        at += seconds
        looks = [look(f"p{n}", 0, 1, reason) for n, reason in enumerate(found)]
        go_round(known, at, *looks)
        expected += seconds * sum(reason is not None for reason in found)
    assert math.isclose(expected, sum(waits(known).values()), rel_tol=1e-6, abs_tol=1e-6)


def test_what_was_waited_lately_is_a_project_s_own():
    """X8: of the last half to whole minute, label or none."""
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


def test_counters_are_those_of_the_queues_added_up():
    known = tenants()
    go_round(known, 0, look(flow=(5, 2, 1)), look(flow=(1, 0, 0)))
    go_round(known, 1, look(flow=(9, 6, 1)), look(flow=(1, 1, 0)), look(band=0, flow=(3, 0, 0)))
    assert {("acme", 0): Flow(3, 0, 0), ("acme", 1): Flow(10, 7, 1), ("acme", 2): Flow()} == known.counted


def test_counters_never_fall():
    """X8: a partition goes with its queues, a term ends, another begins."""
    known = tenants()
    go_round(known, 0, look(flow=(5, 2, 1)), look(flow=(100, 90, 0)))
    go_round(known, 1, look(flow=(8, 3, 1)))
    assert Flow(108, 93, 1) == known.counted["acme", 1]
    go_round(known, 2, look(flow=(10, 3, 1)))
    assert Flow(110, 93, 1) == known.counted["acme", 1]
    known.clear()
    assert {} == known.table
    known.published.clear()  # they are other queues
    go_round(known, 3, look(flow=(4, 0, 0)))
    assert Flow(114, 93, 1) == known.counted["acme", 1]


def test_a_round_that_failed_counts_nothing_twice():
    known = tenants()
    go_round(known, 0, look(flow=(5, 0, 0)))
    known.begin(SECOND)
    known.look(look(flow=(1, 0, 0)))  # what was new then stays so
    go_round(known, 2, look(flow=(7, 0, 0)))
    assert Flow(8, 0, 0) == known.counted["acme", 1]


# ---- what stands


def test_what_stands_in_the_table():
    """X8: backlog, age, in flight and the reason of each priority; what is idle is there as nothing."""
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


def test_heads_are_looked_for_where_they_are_wanted():
    """Of each lane the first, and only of who has a label."""
    known = tenants(most=1)
    known.begin(0)
    for sequence in (9, 7, 8):
        known.look(look(backlog=1, place=(LaneId("lanes", 3), sequence)))
    known.look(look("other-one", backlog=1, place=(LaneId("lanes", 4), 1)))
    assert {(LaneId("lanes", 3), 7)} == known.places()


# ---- rates, and when it is empty


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


def test_time_to_empty_where_nothing_waits_or_nothing_goes():
    known = tenants()
    for at in (0, 2):
        go_round(known, at, look(backlog=5, reason="paused"), look(band=2), topics=topic(state="paused"))
    assert (math.inf, 0.0) == (known.table["acme", 1].empty_in, known.table["acme", 2].empty_in)


def test_a_quota_that_is_used_up_tells_before_much_was_handled():
    """X7: one in 10 s is what half of the topic's rate gives on this node."""
    known = tenants()
    for at in (0, 2):
        go_round(known, at, look(backlog=3, reason="quota"), topics=topic(qps=0.2), part=0.5)
    assert 30.0 == pytest.approx(known.table["acme", 1].empty_in)


@pytest.mark.parametrize("event", ["topic", "partitions"])
def test_under_other_circumstances_the_measurement_begins_anew(event):
    """X4, X7: what was handled under the old rule is no forecast."""
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


def test_long_rounds_are_measured_all_the_same():
    known = tenants()
    for at in (0, 40, 80):
        go_round(known, at, look(flow=(at, 0, 0)))
    assert 1.0 == known.table["acme", 1].rates.arriving


# ---- bounds


def test_the_busiest_have_labels_and_stay_a_while():
    scores = {"a": 10, "b": 9, "c": 5, "other": 99}
    assert {"a", "b"} == busiest(scores, (), 2)
    assert {"a", "c"} == busiest(scores, {"c"}, 2)  # another is to be twice as busy
    assert {"a", "b"} == busiest({**scores, "c": 4}, {"c"}, 2)
    assert set() == busiest(scores, {"a"}, 0)
    assert {"a", "b", "c"} == busiest(scores, (), 10)


def test_who_loses_the_label_is_counted_among_the_rest():
    known = tenants(most=1)
    for at in range(12):
        go_round(known, at, look("small", backlog=1, reason="quota", flow=(at, 0, 0)), look("big", flow=(0, 0, 0)))
    for at in range(12, 24):
        big = look("big", backlog=9_999, reason="paused", flow=(9_999, 0, 0))
        go_round(known, at, look("small", backlog=1, reason="quota", flow=(at, 0, 0)), big)
    assert {"big", "other"} == {label for label, _ in known.table}
    assert {"big", "other"} == {label for label, *_ in waits(known)}
    assert 1 == known.left_out


def test_a_project_called_as_the_rest_is_counted_there():
    known = tenants()
    go_round(known, 0, look("other", backlog=3), look("acme", backlog=4))
    assert (3, 1) == (known.table["other", 1].backlog, known.left_out)


def test_ten_thousand_random_tenants():
    """Fault 21: the number of time series is bounded, whoever is the busiest."""
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
        assert len(known._paces) <= 51 * 3
        assert 10_000 - 50 == known.left_out
    assert {"other"} < {label for label, _ in known.table}


def test_topics_are_asked_for_the_named_alone():
    asked = []
    known = tenants(most=1)

    def of(project) -> Topic | None:
        asked.append(project)
        return None

    go_round(known, 0, look("acme", backlog=5), look("bolt", backlog=1), topics=of)
    assert ["acme"] == asked


# ---- labels at rest


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["comes", "waits", "runs", "leaves", "topic", "part", "partitions", "restart"]),
        st.integers(0, 2),
        st.integers(0, 4),
    ),
    max_size=20,
)


class Pair:
    """Two nodes to which the same happens; the second one never treats a label as at rest."""

    def __init__(self):
        self.nodes = tenants(most=2), tenants(most=2)
        self.topics, self.flows = dict.fromkeys("abc", topic()), dict.fromkeys("abc", 0)
        self.present, self.part = set("abc"), 1.0
        self.clock = count(0, 20)
        self.go_round()

    def happens(self, project, event, band):
        """Returns what the next round finds of it: looks, and what is in flight."""
        if event == "leaves":
            self.present.discard(project)
        elif event == "topic":
            self.topics[project] = topic(qps=1.0 + next(self.clock)) if band else None
            self.nodes[0].rules_changed()
        elif event == "part":
            self.part = (1 + band) / 4
            self.nodes[0].rules_changed()
        elif event == "partitions":
            for node in self.nodes:
                node.measure_again()
        elif event == "restart":
            for node in self.nodes:
                node.clear()
        elif event == "runs":
            return [], {(project, band): 1}
        else:
            self.present.add(project)
            self.flows[project] += 100 * (event == "comes")
            waits = {"backlog": 3, "reason": "quota"} if event == "waits" else {}
            return [look(project, band, flow=(self.flows[project], 0, 0), **waits)], {}
        return [], {}

    def go_round(self, looks=(), in_flight=None):
        at = next(self.clock)
        self.nodes[1].rules_changed()
        for node in self.nodes:
            node.projects = self.present
            go_round(node, at, *looks, in_flight=in_flight, topics=self.topic_of, part=self.part)
        self.running = {project for project, _ in in_flight or {}}

    def topic_of(self, project):
        return self.topics[project] if project in self.present else None

    def check(self):
        """Both show the same: no label of a project that isn't here, and each quota as it is now."""
        node, reference = self.nodes
        assert shown(node) == shown(reference)
        labels = {label for label, _ in node.table} - {"other"}
        assert labels <= self.present | self.running
        now = {name: known.qps * self.part for name in "abc" if (known := self.topic_of(name)) is not None}
        assert node.quotas.items() <= now.items()
        assert labels & now.keys() <= node.quotas.keys()


@given(EVENTS)
def test_labels_at_rest_show_what_a_full_round_would_show(events):
    """F9, X8: whatever happens, the table and the quotas are those of a node that completes each label each round."""
    pair = Pair()
    for project, event, band, quiet in [("a", "topic", 1, 4), *events]:
        for found in [pair.happens(project, event, band), *[()] * quiet]:
            pair.go_round(*found)
            pair.check()


def shown(node):
    table = {
        place: (each.backlog, each.in_flight, each.age_s, each.reasons, each.rates, each.empty_in)
        for place, each in node.table.items()
    }
    return table, node.quotas, node.counted, node.left_out


def test_labels_at_rest_are_asked_for_nothing():
    """F9: once what happened to a project is half a minute old."""
    asked = []
    known = tenants()
    known.projects = {"acme", "bolt"}

    def of(project) -> Topic | None:
        asked.append(project)
        return topic()

    for at in range(60):
        go_round(
            known, at, *([look("acme", flow=(1, 1, 0)), look("bolt", flow=(1, 1, 0))] if at < 2 else ()), topics=of
        )
    asked.clear()
    for at in range(60, 90):
        go_round(known, at, topics=of)
    assert [] == asked
    assert {("acme", 100.0), ("bolt", 100.0)} == {*known.quotas.items()}
    go_round(known, 90, look("acme", backlog=1, reason="quota", flow=(1, 1, 0)), topics=of)
    assert ["acme"] == asked
    known.rules_changed()
    go_round(known, 91, topics=of)
    assert {"acme", "bolt"} == {*asked}


def test_a_round_that_fails_leaves_no_old_quota_behind():
    """X8: it has told some labels their quotas, and the next round tells them all."""
    known = tenants(most=12)
    known.projects = {f"t{number}" for number in range(12)}
    for at in range(0, 200, 20):
        go_round(known, at, *([look(project) for project in known.projects] if not at else ()))
    asked = count(1)

    def of(_) -> Topic:
        if next(asked) == 9:
            raise RuntimeError("a defect")
        return topic()

    known.rules_changed()
    with pytest.raises(RuntimeError):
        go_round(known, 200, topics=of, part=0.5)
    for at in range(220, 400, 20):
        go_round(known, at, topics=of, part=0.5)
    assert dict.fromkeys(known.projects, 50.0) == known.quotas
