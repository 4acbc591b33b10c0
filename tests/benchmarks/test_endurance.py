"""Memory over many messages: the measurement runs to its end, which it reaches when all messages are handled."""

import subprocess
import sys

import pytest

from tests.support import ROOT

SMALL = ["--messages", "2000", "--part", "500", "--queues", "30", "--partitions", "2"]


@pytest.mark.real
def test_a_small_run_names_each_part_and_its_verdict():
    """E16: the exit code says whether the memory grows; a run of a few seconds may end either way."""
    command = [sys.executable, "-m", "benchmarks.endurance", *SMALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60)
    *parts, verdict = done.stdout.decode().splitlines()
    assert ["500", "1,000", "1,500", "2,000"] == [line.split()[0] for line in parts if "messages" in line]
    growth = float(verdict.split("first quarter: ")[1].split(",")[0])
    assert done.returncode == (growth > 1.05)
