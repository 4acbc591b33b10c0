"""Generated and written files under test, and the tools that read them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support import ROOT

GRAFANA = sorted((ROOT / "dashboards/grafana").glob("*.json"))
RULES = sorted((ROOT / "dashboards/prometheus").glob("*.rules.yml"))
RULE_TESTS = sorted((Path(__file__).parent / "alerts").glob("*.test.yml"))
RUNBOOKS = ROOT / "docs/how-to/runbooks.md"

LENGTHS = re.compile(r"\$__(rate_interval|interval|range)\b")
"""Variables that Grafana replaces by a length of time."""


class Query(NamedTuple):
    where: str
    expr: str


@cache
def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards by name, shared by all tests: they must not be changed."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in GRAFANA}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of a dashboard, without its headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: dict[str, Any]) -> Iterator[Query]:
    """The queries of its panels and annotations."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Query(panel["title"], target["expr"])
    for mark in dashboard["annotations"]["list"]:
        yield Query(mark["name"], mark["target"]["expr"])


def variables(dashboard: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


@cache
def parsed(path: Path) -> Any:
    """The content of a YAML file, shared by all tests: it must not be changed."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def rules() -> list[dict[str, Any]]:
    return [rule for path in RULES for group in parsed(path)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def program(name: str) -> str:
    """The path of a program. Its absence fails the test instead of skipping it: only the program proves the rules."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} isn't on the PATH: it comes with the Debian package `prometheus`", pytrace=False)
    return found


def promtool(*arguments: str | Path) -> str:
    """Run promtool, which must succeed; return its output."""
    tool = program("promtool")
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=250)
    output = done.stdout + done.stderr
    assert 0 == done.returncode, output
    return output
