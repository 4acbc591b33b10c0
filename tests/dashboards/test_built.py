"""The committed dashboards equal the output of the code, and Grafana's model reads them."""

import json
import subprocess
import sys

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from evenlane.dashboards import build
from tests.dashboards.files import GRAFANA, dashboards


def test_committed_dashboards_equal_the_build():
    """`python -m evenlane.dashboards.build` writes them."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in GRAFANA}
    assert committed == build.build_files(), "run python -m evenlane.dashboards.build"


def test_users_need_no_sdk():
    """The SDK is for development only: the wheel has JSON, and names of series."""
    script = (
        "import sys; sys.modules['grafana_foundation_sdk'] = None;"
        " import evenlane.dashboards.queries, evenlane.dashboards.records; print(evenlane.dashboards.records.AGE)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "env_project_priority:evenlane_oldest_message_age_seconds:max" == done.stdout.strip(), done.stderr


@pytest.mark.parametrize("name", ["fleet", "tenant", "fairness", "delivery"])
def test_grafanas_model_reads_each_field(name):
    """The SDK's model, generated from Grafana's schema, neither rejects nor loses a field."""
    committed = dashboards()[name]
    assert 42 == committed["schemaVersion"]
    read = json.loads(json.dumps(Dashboard.from_json(committed), cls=JSONEncoder))
    for each in (*read["links"], *read["annotations"]["list"]):
        assert "inControlsMenu" == each.pop("placement"), "the model's default, which build.py removes"
    assert _without_field_links(committed) == _without_field_links(read)


def _without_field_links(dashboard):
    """A copy without links of fields, for which the model has a type that Grafana doesn't have."""
    copy = json.loads(json.dumps(dashboard))
    for panel in copy["panels"]:
        panel.get("fieldConfig", {}).get("defaults", {}).pop("links", None)
    return copy
