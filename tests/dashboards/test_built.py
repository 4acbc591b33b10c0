"""The committed dashboards equal the output of the code."""

import subprocess
import sys

from evenlane.dashboards import build
from tests.dashboards.files import GRAFANA


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
