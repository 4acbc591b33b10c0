"""Rounds of the tenant registry over given queues, at given times."""

from collections import Counter
from operator import sub

from evenlane.engine.telemetry.tenants.backlog import QueueSample
from evenlane.engine.telemetry.tenants.flows import NOTHING, TenantFlow
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.quota.topics.topic import Topic

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
PRIORITIES = ("high", "mid", "low")


def topic(**fields) -> Topic:
    return Topic(**{"qps": 100.0, "groups": 1, "burst": 1, "weight": 100.0, "spread": 2, **fields})


def tenants(most=10) -> TenantRegistry:
    return TenantRegistry(PRIORITIES, most, 150.0)


def look(project="acme", band=1, backlog=0, reason=None, flow=(), **fields) -> QueueSample:
    return QueueSample(project, band, backlog, reason, flow=TenantFlow(*flow), **fields)


def new_of(tenants, looks):
    """The looks with the change of each queue since the round before. Queues of one project and band are identified
    by their order.
    """
    published = tenants.__dict__.setdefault("published", {})
    turns = Counter()
    for each in looks:
        queue = each.project, each.band, turns[each.project, each.band]
        turns[each.project, each.band] += 1
        before, published[queue] = published.get(queue, NOTHING), each.flow
        yield each._replace(flow=TenantFlow(*map(sub, each.flow, before)))


def go_round(tenants, at, *looks, in_flight=None, came=None, topics=topic, part=1.0, took=0) -> None:
    """Run one round. `at` and `took` are in seconds."""
    tenants.begin(int(at * SECOND))
    for each in new_of(tenants, looks):
        tenants.look(each)
    assert all(step is None for step in tenants.count(lambda _: 1.0))
    of = topics if callable(topics) and not isinstance(topics, Topic) else lambda _: topics
    topic_of = (lambda _: topic()) if topics is topic else of
    steps = tenants.end(int((at + took) * SECOND), NOW, in_flight or {}, came or {}, topic_of, lambda _: part)
    assert all(step is None for step in steps)
