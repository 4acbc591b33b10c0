"""Rounds over queues that stand in a table, at instants of the test's own."""

from engine.metrics.flows import Flow
from engine.metrics.standing import Look
from engine.metrics.tenants import Tenants
from quota.topic import Topic

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
PRIORITIES = ("high", "mid", "low")


def topic(**fields) -> Topic:
    return Topic(**{"qps": 100.0, "groups": 1, "burst": 1, "weight": 100.0, "spread": 2, **fields})


def tenants(most=10) -> Tenants:
    return Tenants(PRIORITIES, most, 150.0)


def look(project="acme", band=1, backlog=0, reason=None, flow=(0, 0, 0), **fields) -> Look:
    return Look(project, band, backlog, reason, flow=Flow(*flow), **fields)


def go_round(tenants, at, *looks, in_flight=None, came=None, topics=topic, part=1.0, took=0) -> None:
    """`at` and `took` in seconds."""
    tenants.begin(int(at * SECOND))
    for each in looks:
        tenants.look(each)
    assert all(step is None for step in tenants.count())
    of = topics if callable(topics) and not isinstance(topics, Topic) else lambda _: topics
    topic_of = (lambda _: topic()) if topics is topic else of
    tenants.end(int((at + took) * SECOND), NOW, in_flight or {}, came or {}, topic_of, lambda _: part)
