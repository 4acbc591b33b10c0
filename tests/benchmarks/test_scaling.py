"""Throughput by the number of processes: each handles every message that it is given."""

import json
import subprocess
import sys

import pytest

from tests.support import ROOT

SMALL = ["--messages", "600", "--partitions", "2", "--rounds", "1", "--only", "processes", "--json"]


@pytest.mark.real
def test_a_small_run_has_figures():
    """E16: of one process and of two, whose messages add up."""
    command = [sys.executable, "-m", "benchmarks.scaling", *SMALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=90)
    assert 0 == done.returncode, done.stderr.decode()
    measured = json.loads(done.stdout)
    assert {"2 processes / 1 process", "2 busy processes / 1 busy process"} == measured["ratios"].keys()
    rates = [value for name, values in measured["all"].items() if ":" not in name for value in values]
    assert 4 == len([rate for rate in rates if rate > 0])
