"""Prometheus accepts the rules and the panels' expressions; alerts fire when they must, and only then."""

import json
import re

import pytest

from tests.dashboards.files import (
    LENGTHS,
    ROOT,
    RULE_TESTS,
    RULES,
    alerts,
    dashboards,
    parsed,
    promtool,
    queries,
    rules,
)

SEVERITIES = {"critical", "warning", "info"}


def test_promtool_accepts_the_rules():
    output = promtool("check", "rules", *RULES)
    assert len(RULES) == output.count("SUCCESS"), output


def test_promtool_accepts_the_expressions_of_panels(tmp_path):
    """Each expression is put into a rule, as promtool checks only rules."""
    asked = [
        {"record": f"panel:{name}:number_{number}", "expr": LENGTHS.sub("5m", query.expr)}
        for name, each in dashboards().items()
        for number, query in enumerate(queries(each))
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": asked}]}), encoding="utf-8")
    assert f"{len(asked)} rules found" in promtool("check", "rules", file)


@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda file: file.name.partition(".")[0])
def test_alerts_fire_only_for_their_fault(file, tmp_path):
    """`promtool test rules` with faults and near misses; it compares labels and texts, too."""
    promtool("test", "rules", _with_needed_rules(file, tmp_path))


def _with_needed_rules(file, folder):
    """Copy the test file and the rules that it asks for: promtool evaluates all rules at each step, which takes three
    times as long.
    """
    needed = _needed(file)
    text = file.read_text(encoding="utf-8")
    for path in RULES:
        groups = [
            {**group, "rules": [rule for rule in group["rules"] if _name(rule) in needed]}
            for group in parsed(path)["groups"]
        ]
        (folder / path.name).write_text(json.dumps({"groups": groups}), encoding="utf-8")
        text = text.replace(f"../../../dashboards/prometheus/{path.name}", str(folder / path.name))
    assert "../" not in text
    (folder / file.name).write_text(text, encoding="utf-8")
    return folder / file.name


def _needed(file):
    """The names of the alerts that the file names, and of the recording rules that they use."""
    names, more = set(), {each["alertname"] for test in parsed(file)["tests"] for each in test["alert_rule_test"]}
    while more:
        names |= more
        asked = " ".join(rule["expr"] for rule in rules() if _name(rule) in more)
        more = {_name(rule) for rule in rules() if _name(rule) in asked} - names
    return names


def _name(rule):
    return rule.get("record") or rule["alert"]


def test_each_alert_has_a_fault_and_a_near_miss():
    fires, quiet = set(), set()
    for file in RULE_TESTS:
        for test in parsed(file)["tests"]:
            for each in test["alert_rule_test"]:
                (fires if each["exp_alerts"] else quiet).add(each["alertname"])
    assert set(alerts()) == fires
    assert set(alerts()) == quiet


def test_alerts_have_severity_texts_and_links():
    for name, rule in alerts().items():
        assert {"severity"} == set(rule["labels"]) - {"status"}, name
        assert rule["labels"]["severity"] in SEVERITIES, name
        annotations = rule["annotations"]
        assert {"summary", "description", "runbook_url", "dashboard"} == set(annotations), name
        assert annotations["description"].endswith("."), name
        assert f"docs/how-to/runbooks.md#{name.lower()}" == annotations["runbook_url"]


def test_alerts_link_to_existing_dashboards():
    for name, rule in alerts().items():
        uid, _, chosen = rule["annotations"]["dashboard"].removeprefix("/d/").partition("?")
        found = {each["uid"]: each for each in dashboards().values()}[uid]
        offered = {variable["name"] for variable in found["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", chosen)) <= offered, name


def test_docs_have_the_number_of_alerts():
    text = (ROOT / "docs/how-to/monitor.md").read_text(encoding="utf-8")
    assert f"and {len(alerts())} alerts" in text
