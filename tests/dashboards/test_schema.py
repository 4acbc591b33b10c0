"""The dashboards have the schema of the Grafana that deploy/observability runs (schema/generate.py)."""

import copy
import functools
import json

import pytest
from jsonschema import Draft7Validator

from tests.dashboards.files import dashboards, panels
from tests.dashboards.schema.generate import SCHEMA, version


@functools.cache
def _validator():
    return Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def _wrong(dashboard):
    return sorted(f"{each.json_path}: {each.message}" for each in _validator().iter_errors(dashboard))


@pytest.mark.parametrize("name", ["fleet", "tenant", "fairness", "delivery"])
def test_dashboards_have_grafanas_schema(name):
    """E7: every field of the dashboard, of the options of its panels, of its queries and of its overrides."""
    assert [] == _wrong(dashboards()[name])
    assert 42 == dashboards()[name]["schemaVersion"]


def test_schema_is_that_of_the_deployed_grafana():
    """E7: a new image needs `python -m tests.dashboards.schema.generate`."""
    assert version() == _validator().schema["grafana"]


def _first(dashboard, kind):
    return next(panel for panel in panels(dashboard) if panel["type"] == kind)


def _set_override(dashboard, kind, **fields):
    panel = next(each for each in panels(dashboard) if each["type"] == kind and each["fieldConfig"]["overrides"])
    panel["fieldConfig"]["overrides"][0]["properties"][0].update(fields)


MUTANTS = {
    "unknown panel": (lambda board: _first(board, "stat").update(type="stats"), "'stats' is not one of"),
    "misspelt option": (lambda board: _first(board, "stat")["options"].update(colourMode="value"), "'colourMode'"),
    "option of another panel": (lambda board: _first(board, "stat")["options"].update(cellHeight="sm"), "'cellHeight'"),
    "wrong value": (lambda board: _first(board, "stat")["options"].update(graphMode="areas"), "'areas' is not one of"),
    "wrong type": (lambda board: _first(board, "stat")["gridPos"].update(w="4"), "'4' is not of type 'number'"),
    "missing title": (lambda board: _first(board, "table").pop("title"), "'title' is a required property"),
    "misspelt option of a field": (
        lambda board: _first(board, "timeseries")["fieldConfig"]["defaults"]["custom"].update(linewidth=1),
        "'linewidth'",
    ),
    "misspelt option of a query": (lambda board: _first(board, "table")["targets"][0].update(instance=1), "'instance'"),
    "wrong format of a query": (lambda board: _first(board, "table")["targets"][0].update(format="list"), "'list'"),
    "unknown override": (lambda board: _set_override(board, "table", id="units"), "'units' is not one of"),
    "wrong value of an override": (lambda board: _set_override(board, "table", id="unit", value=5), "5 is not of type"),
    "unknown transformation": (lambda board: _first(board, "table")["transformations"][0].update(id="join"), "'join'"),
    "unknown variable": (lambda board: board["templating"]["list"][0].update(type="data"), "'data' is not one of"),
    "annotation without a query": (lambda board: board["annotations"]["list"][0].pop("target"), "'target'"),
    "misspelt field": (lambda board: board.update(refreshes="10s"), "'refreshes'"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_fields_are_found(mutant):
    """E7: the test above can fail."""
    mutate, expected = MUTANTS[mutant]
    board = copy.deepcopy(dashboards()["fleet"])
    mutate(board)
    found = _wrong(board)
    assert 1 <= len(found) <= 2
    assert expected in found[0]
