"""`make bench`: it runs to its end, which it reaches when every message that it times has been handled."""

import json
import subprocess
import sys

import pytest

from tests.support import ROOT

SMALL = ["--messages", "600", "--queues", "30", "--partitions", "2", "--pinned", "20", "--rounds", "1", "--json"]


@pytest.mark.real
def test_a_small_run_has_figures():
    """E16: of the node, also with paused messages at the head of each partition."""
    command = [sys.executable, "-m", "benchmarks.throughput", *SMALL, "--only", "node,pinned"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert 0 == done.returncode, done.stderr.decode()
    figures = json.loads(done.stdout)["median"]
    assert min(figures["node"], figures["pinned"]) > 0
