"""The tables of the page on benchmarks are made from the saved figures of two runs."""

import json
import subprocess
import sys

import pytest

from benchmarks.tables import ARMS, WAYS, tables
from tests.support import ROOT


def run(rate, ratio):
    median = dict.fromkeys((*ARMS, *WAYS), rate)
    spread = {"median": ratio, "least": ratio - 0.1, "most": ratio + 0.1}
    return {
        "median": median,
        "ratios": {"node / bare": spread},
        "options": {"rounds": 5, "messages": 120_000, "partitions": 8},
    }


def test_tables_have_both_builds():
    made = tables(run(1_234.0, 0.95), run(2_345.0, 1.9))
    assert "| node | Evenlane: fed, scheduled, handled and settled | 1,200 msg/s | 2,300 msg/s |" in made
    assert "| node / bare | 0.95, compiled 1.3 | 0.95 (0.85 to 1.05) | 1.90 (1.80 to 2.00) |" in made
    assert "| FastStream, push | `@broker.subscriber(subject, stream=...)` | 1,200 msg/s | 2,300 msg/s |" in made
    assert "5 rounds of 120,000 messages" in made


@pytest.mark.real
def test_a_small_run_of_the_documented_ways_can_be_saved(tmp_path):
    """E16: each way of nats-py and FastStream handles, or puts, all of its messages."""
    saved = tmp_path / "run.json"
    small = ["--messages", "600", "--queues", "30", "--partitions", "2", "--rounds", "1", "--only", "documented"]
    command = [sys.executable, "-m", "benchmarks.throughput", *small, "--save", str(saved)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=90)
    assert 0 == done.returncode, done.stderr.decode()
    median = json.loads(saved.read_text())["median"]
    assert all(median[way] > 0 for way in WAYS if way.startswith(("nats-py", "FastStream")))
