"""The committed dashboards are what the code builds, as Grafana's own model of a dashboard reads it."""

import json
import subprocess
import sys

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from evenlane.dashboards import build
from tests.dashboards.files import GRAFANA, dashboards


def test_the_committed_files_are_what_the_code_builds():
    """Row 2: dashboards as code. `python -m evenlane.dashboards.build` writes them anew."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in GRAFANA}
    assert committed == build.built(), "run python -m evenlane.dashboards.build"


def test_no_one_needs_the_sdk_to_use_what_is_there():
    """It is for development only: who installs the wheel gets JSON, and names to work with."""
    script = (
        "import sys; sys.modules['grafana_foundation_sdk'] = None;"
        " import evenlane.dashboards.queries, evenlane.dashboards.records; print(evenlane.dashboards.records.AGE)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "env_project_priority:evenlane_oldest_message_age_seconds:max" == done.stdout.strip(), done.stderr


@pytest.mark.parametrize("name", ["fleet", "tenant", "fairness", "delivery"])
def test_grafanas_model_reads_all_of_it(name):
    """Nothing in a file is unknown to the model that the SDK generates from Grafana's schema, or lost by it."""
    committed = dashboards()[name]
    assert 42 == committed["schemaVersion"]
    read = json.loads(json.dumps(Dashboard.from_json(committed), cls=JSONEncoder))
    for each in (*read["links"], *read["annotations"]["list"]):
        assert "inControlsMenu" == each.pop("placement"), "the model's default, which build.py takes out"
    assert _without_field_links(committed) == _without_field_links(read)


def _without_field_links(dashboard):
    """The model has a type for links of a field that Grafana hasn't."""
    copy = json.loads(json.dumps(dashboard))
    for panel in copy["panels"]:
        panel.get("fieldConfig", {}).get("defaults", {}).pop("links", None)
    return copy
