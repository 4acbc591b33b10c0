"""`python -m benchmarks.failover`: it runs to its end."""

import json
import subprocess
import sys

import pytest

from tests.support import ROOT

SMALL = ["--runs", "2", "--processes", "2", "--partitions", "8", "--every", "0.1", "--json"]


@pytest.mark.real
@pytest.mark.full
def test_a_small_run_has_figures():
    """L, E7: of a leader and of another node that are killed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.failover", *SMALL], cwd=ROOT, capture_output=True, check=False, timeout=110
    )
    reported = json.loads(done.stdout or "{}")
    assert 2 == len(reported.get("runs", [])), done.stderr.decode()
    assert (0, [True, False]) == (reported["figures"]["lost"], ["leader" in run["killed"] for run in reported["runs"]])
