"""The chart's monitoring: the rules, dashboards and labels of the repository."""

import subprocess

import pytest
import yaml

from tests.dashboards.files import program
from tests.deploy.charts import MOST, merged, render
from tests.support import ROOT

pytestmark = pytest.mark.source


def test_rules_are_those_of_the_repository(tmp_path):
    """The same rules, with bases before the addresses; promtool accepts them."""
    monitoring = {"runbookBase": "https://wiki.example/", "grafanaBase": "https://grafana.example"}
    objects = render(merged(MOST, {"monitoring": {"rules": monitoring}}))
    spec = objects["PrometheusRule", "shop-evenlane"]["spec"]
    names = [group["name"] for group in spec["groups"]]
    sources = {}
    for name in ("targets", "shared", "alerts"):
        sources |= {each["name"]: each for each in _rules(name)["groups"]}
    assert len(names) == len(set(names))
    assert set(sources) == set(names)
    for group in spec["groups"]:
        if group["name"] == "evenlane-targets":
            assert _targets(sources[group["name"]]) == _targets(group)
            continue
        for expected, rule in zip(sources[group["name"]]["rules"], group["rules"], strict=True):
            if notes := expected.get("annotations"):
                notes["runbook_url"] = f"https://wiki.example/{notes['runbook_url']}"
                if "dashboard" in notes:
                    notes["dashboard"] = f"https://grafana.example{notes['dashboard']}"
            assert expected == rule
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(spec))
    checked = subprocess.run([program("promtool"), "check", "rules", path], capture_output=True, text=True, check=False)
    assert 0 == checked.returncode, checked.stdout + checked.stderr


def _rules(name):
    return yaml.safe_load((ROOT / f"dashboards/prometheus/{name}.rules.yml").read_text())


def _targets(group):
    return sorted(
        (each["record"], each.get("labels", {}).get("priority", "-"), each["expr"]) for each in group["rules"]
    )


def test_dashboards_are_those_of_the_repository():
    objects = render(MOST)
    for path in (ROOT / "dashboards/grafana").glob("*.json"):
        each = objects["ConfigMap", f"shop-evenlane-dashboard-{path.stem}"]
        assert {f"evenlane-{path.name}": path.read_text()} == each["data"]
        assert "1" == each["metadata"]["labels"]["grafana_dashboard"]
        assert len(path.read_bytes()) < 2**20  # of a ConfigMap


def test_metrics_have_the_job_that_alerts_expect():
    objects = render(MOST)
    spec = objects["PodMonitor", "shop-evenlane"]["spec"]
    [endpoint] = spec["podMetricsEndpoints"]
    assert ("http", "/metrics", "10s") == (endpoint["port"], endpoint["path"], endpoint["interval"])
    assert [{"action": "replace", "targetLabel": "job", "replacement": "evenlane"}] == endpoint["relabelings"]
    labels = objects["Deployment", "shop-evenlane"]["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
