"""Prometheus takes the rules and all that the panels ask; each alert fires when it must, and not when it must not."""

import json
import re

import pytest
import yaml

from tests.dashboards.files import LENGTHS, ROOT, RULE_TESTS, RULES, alerts, dashboards, promtool, queries

SEVERITIES = {"critical", "warning", "info"}


def test_promtool_takes_the_rules():
    """`promtool check rules` finds nothing to say."""
    reported = promtool("check", "rules", *RULES)
    assert len(RULES) == reported.count("SUCCESS"), reported


def test_prometheus_can_read_all_that_panels_ask(tmp_path):
    """Each expression is put into a rule, as promtool checks those."""
    asked = [
        {"record": f"panel:{name}:number_{number}", "expr": LENGTHS.sub("5m", query.expr)}
        for name, each in dashboards().items()
        for number, query in enumerate(queries(each))
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": asked}]}), encoding="utf-8")
    assert f"{len(asked)} rules found" in promtool("check", "rules", file)


@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda file: file.name.partition(".")[0])
def test_alerts_fire_and_keep_quiet(file):
    """`promtool test rules`, over faults and what lies beside them; labels and texts are compared, too."""
    promtool("test", "rules", file)


def test_each_alert_has_a_fault_that_fires_it_and_something_near_that_does_not():
    fires, quiet = set(), set()
    for file in RULE_TESTS:
        for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]:
            for each in test["alert_rule_test"]:
                (fires if each["exp_alerts"] else quiet).add(each["alertname"])
    assert set(alerts()) == fires
    assert set(alerts()) == quiet


def test_each_alert_says_what_how_bad_and_where_to_go_on():
    for name, rule in alerts().items():
        assert {"severity"} == set(rule["labels"]), name
        assert rule["labels"]["severity"] in SEVERITIES, name
        reported = rule["annotations"]
        assert {"summary", "description", "runbook_url", "dashboard"} == set(reported), name
        assert reported["description"].endswith("."), name
        assert f"docs/how-to/runbooks.md#{name.lower()}" == reported["runbook_url"]


def test_each_alert_leads_to_a_dashboard_that_there_is():
    for name, rule in alerts().items():
        uid, _, chosen = rule["annotations"]["dashboard"].removeprefix("/d/").partition("?")
        found = {each["uid"]: each for each in dashboards().values()}[uid]
        offered = {variable["name"] for variable in found["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", chosen)) <= offered, name


def test_the_docs_count_the_alerts():
    text = (ROOT / "docs/how-to/monitor.md").read_text(encoding="utf-8")
    assert f"and {len(alerts())} alerts" in text
