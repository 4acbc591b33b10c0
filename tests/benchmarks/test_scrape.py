"""The cost of a scrape: the measurement runs to its end, which it reaches when the page shows all waiting messages."""

import json
import subprocess
import sys

import pytest

from tests.support import ROOT


@pytest.mark.real
@pytest.mark.full
def test_a_small_run_has_figures():
    """X8: of a node with more tenants than labels."""
    command = [sys.executable, "-m", "benchmarks.scrape", "--tenants", "20", "--labels", "5", "--rounds", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert 0 == done.returncode, done.stderr.decode()
    figures = json.loads(done.stdout)
    assert 0 < figures["scrape_ms"]
    assert 6 * 3 * 10 < figures["lines"] < 2_000
