"""Dashboards and rules ask for metrics that there are, with labels' values that there are."""

import re

from evenlane.dashboards import queries as pieces
from evenlane.dashboards import records
from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.engine.telemetry import metric_names
from tests.dashboards.files import dashboards, queries, rules, variables

METRICS = {value for key, value in vars(metric_names).items() if key.isupper() and str(value).startswith("evenlane_")}
RECORDED = {value for key, value in vars(records).items() if key.isupper()}
BUCKETS = {f"{name}_bucket" for name in (metric_names.DWELL, metric_names.HANDLING)}
OTHERS = {"up", "ALERTS", pieces.PROCESS_CPU, pieces.PROCESS_MEMORY, pieces.PROCESS_BEGAN}
VALUES = {
    "reason": set(REASONS),
    "outcome": set(metric_names.OUTCOMES_OF),
    "how": set(metric_names.MOVES_OF),
    "cause": set(metric_names.DUPLICATES_OF),
    "server": {"nats"},
    "alertstate": {"firing"},
}

_NAME = re.compile(r"(?<![\w:])(?:[a-z_]+:)?evenlane_\w+(?::\w+)?|evenlane:\w+:\w+|(?<![\w:])process_\w+")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def _everything():
    """All expressions, of panels, marks, variables and rules."""
    for dashboard in dashboards().values():
        yield from (query.expr for query in queries(dashboard))
        yield from (each["query"] for each in variables(dashboard).values())
    yield from (rule["expr"] for rule in rules())


def test_all_that_is_asked_for_is_told_or_recorded():
    """A metric that was renamed can't leave an empty panel or a dead alert behind."""
    asked = {name for expr in _everything() for name in _NAME.findall(expr)}
    assert set() == asked - METRICS - RECORDED - BUCKETS - OTHERS
    assert asked & METRICS
    assert asked & RECORDED


def test_all_that_is_told_is_shown():
    """A metric that no panel shows would be one that nobody looks at."""
    shown = {name for each in dashboards().values() for query in queries(each) for name in _NAME.findall(query.expr)}
    unshown = METRICS - {name.removesuffix("_bucket") for name in shown}
    assert set() == unshown


def test_what_is_recorded_is_what_the_names_say():
    recorded = [rule["record"] for rule in rules() if "record" in rule]
    assert RECORDED == set(recorded)


def test_labels_have_values_that_there_are():
    """`reason="handler_busy"` would match nothing, and nobody would notice."""
    seen = set()
    for expr in _everything():
        for label, how, value in _MATCHER.findall(expr):
            if label in VALUES and value:
                given = set(value.split("|")) if "~" in how else {value}
                assert given <= VALUES[label], expr
                seen.add(label)
    assert set(VALUES) == seen


def test_what_is_recorded_has_lost_its_node():
    """Recorded series are of all nodes: they say so in their names, level first."""
    for rule in rules():
        if "record" in rule:
            assert re.fullmatch(r"[a-z_]+:evenlane_\w+:\w+|evenlane:\w+:\w+", rule["record"])
            level = rule["record"].partition(":")[0].split("_")
            assert "instance" not in level
