"""Options of the data source, and the ranges that it reads for them."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThanOrEqual

from evenlane.engine.core.export_port import Range
from evenlane.engine.errors import ConfigError
from evenlane.spark.source.filters import ReadFilter, narrow
from evenlane.spark.source.options import TimeRange, parse
from evenlane.spark.source.plan import tasks
from evenlane.spark.source.streaming import advance

SECOND = 1_000_000_000
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_NS = 1_767_355_200 * SECOND


def test_options_default_to_variables(monkeypatch):
    """Options come first; their names may be written in any case."""
    monkeypatch.setenv("EVENLANE_NATS", "nats://a:1")
    monkeypatch.setenv("EVENLANE_ENV", "sandbox")
    options = parse({"ENV": "other", "What": "dead", "payload": "TRUE"})
    assert (("nats://a:1",), "other") == (options.settings.nats, options.settings.env)
    assert ("dead", True, 4, True) == (options.what, options.payload, options.partitions, options.live)
    assert not parse({"archive": "/x"}).live
    assert parse({"archive": "/x", "nats": "nats://b:1"}).live


def test_time_may_be_an_instant_or_a_duration_ago():
    before = time.time_ns()
    span = parse({"since": "2h", "until": "1m"}).span
    assert 7_200 * SECOND - 60 * SECOND < before - span.since <= 7_200 * SECOND
    assert NOON_NS == parse({"since": "2026-01-02T12:00:00Z"}).span.since


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"whta": "meter"}, "there is no option 'whta'; did you mean what"),
        ({"zzz": "1"}, "there is no option 'zzz'; there are what, since"),
        ({"what": "lane"}, "option what: 'lane' is none of meter, lanes, dead"),
        ({"partitions": "0"}, "option partitions: '0' is no whole number from 1 to 10,000"),
        ({"partitions": "many"}, "option partitions: 'many' is no whole number"),
        ({"missing": "fine"}, "option missing: 'fine' is neither error nor empty"),
        ({"payload": "yes"}, "option payload: 'yes' is neither true nor false"),
        ({"since": "yesterday"}, "option since: 'yesterday' is neither a time such as"),
        ({"since": "1h", "until": "2h"}, "option until: 2h is not later than since, 1h"),
        ({"what": "dead", "archive": "/x"}, "option archive: only records of what=meter are archived"),
        ({"nats": "http://here"}, "nats \\(option nats\\)"),
        ({"subscription": "a_b"}, r"subscription \(option subscription\): subscription 'a_b' is not valid"),
        ({"what": "lanes", "subscription": "audit"}, "option subscription: what=lanes has what waits for the subscr"),
        ({"env": "a.b"}, "env \\(option env\\)"),
        ({"nats": "nats://a:1", "nats_user": "me"}, r"nats_user \(option nats_user\): is set without nats_password"),
        ({"nats_ca": "/nowhere"}, "nats_ca"),
    ],
)
def test_invalid_option_is_named_with_valid_values(given, expected):
    with pytest.raises(ConfigError, match=expected):
        parse(given)


ranges = st.lists(
    st.builds(lambda name, first, length: Range(f"S{name}", first, first + length - 1),
              st.integers(0, 99), st.integers(1, 1_000), st.integers(0, 20_000)),
    max_size=20,
)  # fmt: skip


@drawn(ranges, st.integers(1, 16))
def test_tasks_share_all_sequences_evenly(given, most):
    """Large ranges are split, small ones combined, and no task has much more than another."""
    planned = tasks(given, most)
    found = [each for task in planned for each in task.ranges]
    joined = [(each.stream, n) for each in found for n in (each.first, each.last)]
    assert sum(each.last - each.first + 1 for each in given) == sum(each.last - each.first + 1 for each in found)
    assert [(e.stream, n) for e in given for n in range(e.first, e.last + 1)][:50] == [
        (e.stream, n) for e in found for n in range(e.first, e.last + 1)
    ][:50]
    assert len(planned) <= most
    assert len(joined) == 2 * len(found)
    total = sum(each.last - each.first + 1 for each in given)
    assert all(sum(e.last - e.first + 1 for e in task.ranges) <= max(250, -(-total // most)) for task in planned)


def test_filters_narrow_the_read():
    """By time, tenant, node and partition; times of a node's clock have a tolerance of ten minutes."""
    by = narrow(
        [
            GreaterThan(("stored",), NOON), LessThanOrEqual(("at",), NOON), EqualTo(("project",), "acme"),
            In(("partition",), (1, 2)), EqualTo(("partition",), 2), IsNotNull(("node",)), EqualTo(("body", "x"), 1),
        ],
        ReadFilter(TimeRange(since=5)),
    )  # fmt: skip
    assert NOON_NS == by.span.since
    assert NOON_NS + 600 * SECOND + 1_000 == by.span.until
    assert (frozenset({"acme"}), frozenset({2}), None) == (by.project, by.partition, by.node)


def test_offsets_advance_by_shares_and_restart_for_recreated_streams():
    """A deleted stream keeps its offset."""
    start = {"A": ["t1", 10], "B": ["t1", 4], "GONE": ["t1", 7]}
    latest = {"A": ["t1", 30], "B": ["t2", 3], "NEW": ["t2", 5]}
    assert {**start, **latest} == advance(start, latest, None)
    assert {"A": ["t1", 17], "B": ["t2", 1], "NEW": ["t2", 2], "GONE": ["t1", 7]} == advance(start, latest, 10)
    step, seen = start, 0
    while step != (further := advance(step, latest, 3)):
        step, seen = further, seen + 1
    assert {**start, **latest} == step
    assert 10 == seen  # 20 of A, 3 of B, 5 of NEW
