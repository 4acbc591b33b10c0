"""Metrics and label values in dashboards and rules exist."""

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
    "state": set(metric_names.STATES_OF),
}

_NAME = re.compile(r"(?<![\w:])(?:[a-z_]+:)?evenlane_\w+(?::\w+)?|evenlane:\w+:\w+|(?<![\w:])process_\w+")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def _everything():
    """Yield the expressions of panels, annotations, variables and rules."""
    for dashboard in dashboards().values():
        yield from (query.expr for query in queries(dashboard))
        yield from (each["query"] for each in variables(dashboard).values())
    yield from (rule["expr"] for rule in rules())


def test_metrics_in_expressions_exist():
    """A renamed metric can't leave an empty panel or a dead alert."""
    asked = {name for expr in _everything() for name in _NAME.findall(expr)}
    assert set() == asked - METRICS - RECORDED - BUCKETS - OTHERS
    assert asked & METRICS
    assert asked & RECORDED


def test_each_metric_is_on_a_panel():
    shown = {name for each in dashboards().values() for query in queries(each) for name in _NAME.findall(query.expr)}
    unshown = METRICS - {name.removesuffix("_bucket") for name in shown}
    assert set() == unshown


def test_recording_rules_equal_the_constants():
    recorded = [rule["record"] for rule in rules() if "record" in rule]
    assert RECORDED == set(recorded)


def test_label_values_in_expressions_exist():
    """`reason="handler_busy"` would match nothing."""
    seen = set()
    for expr in _everything():
        for label, how, value in _MATCHER.findall(expr):
            if label in VALUES and value:
                given = set(value.split("|")) if "~" in how else {value}
                assert given <= VALUES[label], expr
                seen.add(label)
    assert set(VALUES) == seen


def test_recorded_series_have_no_node():
    """They cover all nodes. Their names begin with the level."""
    for rule in rules():
        if "record" in rule:
            assert re.fullmatch(r"[a-z_]+:evenlane_\w+:\w+|evenlane:\w+:\w+", rule["record"])
            level = rule["record"].partition(":")[0].split("_")
            assert "instance" not in level
