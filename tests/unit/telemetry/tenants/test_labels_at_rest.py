"""Labels at rest in a tenant registry: they cost nothing, and show what full rounds would show (F9, X8)."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.topics.topic import Topic
from tests.support.tenant_rounds import go_round, look, tenants, topic

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
    """Two nodes with the same events. The second one never treats a label as at rest."""

    def __init__(self):
        self.nodes = tenants(most=2), tenants(most=2)
        self.topics, self.flows = dict.fromkeys("abc", topic()), dict.fromkeys("abc", 0)
        self.present, self.part = set("abc"), 1.0
        self.clock = count(0, 20)
        self.go_round()

    def happens(self, project, event, band):
        """Apply an event; return what the next round finds: looks, and messages in flight."""
        if event == "leaves":
            self.present.discard(project)
        elif event == "topic":
            self.topics[project] = topic(qps=1.0 + next(self.clock)) if band else None
            self.nodes[0].on_rules_change()
        elif event == "part":
            self.part = (1 + band) / 4
            self.nodes[0].on_rules_change()
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
        self.nodes[1].on_rules_change()
        for node in self.nodes:
            node.projects = self.present
            go_round(node, at, *looks, in_flight=in_flight, topics=self.topic_of, part=self.part)
        self.running = {project for project, _ in in_flight or {}}

    def topic_of(self, project):
        return self.topics[project] if project in self.present else None

    def check(self):
        """Both show the same: no label of an absent project, and present quotas."""
        node, reference = self.nodes
        assert shown(node) == shown(reference)
        labels = {label for label, _ in node.table} - {"other"}
        assert labels <= self.present | self.running
        now = {name: known.qps * self.part for name in "abc" if (known := self.topic_of(name)) is not None}
        assert node.quotas.items() <= now.items()
        assert labels & now.keys() <= node.quotas.keys()


@given(EVENTS)
def test_labels_at_rest_show_what_a_full_round_would_show(events):
    """F9, X8."""
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


def test_labels_at_rest_read_no_topics():
    """F9: a project is at rest half a minute after its last event."""
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
    known.on_rules_change()
    go_round(known, 91, topics=of)
    assert {"acme", "bolt"} == {*asked}


def test_failed_round_leaves_no_outdated_quota():
    """X8: it has updated some labels, and the next round updates all."""
    known = tenants(most=12)
    known.projects = {f"t{number}" for number in range(12)}
    for at in range(0, 200, 20):
        go_round(known, at, *([look(project) for project in known.projects] if not at else ()))
    asked = count(1)

    def of(_) -> Topic:
        if next(asked) == 9:
            raise RuntimeError("a defect")
        return topic()

    known.on_rules_change()
    with pytest.raises(RuntimeError):
        go_round(known, 200, topics=of, part=0.5)
    for at in range(220, 400, 20):
        go_round(known, at, topics=of, part=0.5)
    assert dict.fromkeys(known.projects, 50.0) == known.quotas
