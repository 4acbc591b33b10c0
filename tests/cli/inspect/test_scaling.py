"""`evenlane scaling` on a real etcd (P10)."""

import json
from functools import partial

import pytest

from evenlane.engine.control.scaling.record import ScalingRecord
from evenlane.ring.membership.records import LeaderRecord, LoadRecord, NodeRecord, encode

LOAD = LoadRecord(used=50.0, wanted=130.5, handling=0.1, blocked={"quota": 12_000})
BUSY = NodeRecord(host="h", cpu=0.62, cores=1.5, projects=31, slots=64, load=LOAD, scaling="leader")
NEW = NodeRecord(host="h", cpu=0.1, cores=1.5, slots=64, scaling="leader")
RECORD = ScalingRecord(
    mode="leader", by="a", at=1_800_000_000.0, desired=3, replicas=2, why="node a uses 95% of its CPU, more than 90%"
)


@pytest.fixture
def scaling(evenlane):
    """Runs `evenlane scaling ...`: (exit code, stdout, stderr)."""
    return partial(evenlane, "scaling")


@pytest.mark.real
def test_scaling_shows_the_decision_and_why(scaling, written, transcript):
    """P10, X6"""
    written(
        "scaled",
        {
            "nodes/a": encode(BUSY),
            "nodes/b": encode(NEW),
            "leader": encode(LeaderRecord(id="a")),
            "scaling": encode(RECORD),
        },
    )
    transcript("scaling")
    transcript("scaling", "--policy", "need", "--target", "p99 wait 2s", "--max", "9")
    transcript("scaling", "--policy", "need")
    transcript("scaling", "--min", "9", "--max", "3")
    transcript("scaling", "--min", "101")
    transcript("scaling", "--min", "x")
    transcript("scaling", "--policy", "fast")
    transcript("scaling", "--target", "p99 wait 2s")
    transcript.check()
    code, out, err = scaling("--json")
    document = json.loads(out)
    assert (0, "", 3, 3) == (code, err, document["replicas"], document["desired"])
    assert {"used": 50.0, "wanted": 130.5, "handling": 0.1, "blocked": {"quota": 12_000}} == document["nodes"][0][
        "load"
    ]


@pytest.mark.real
def test_scaling_names_what_is_missing(scaling, written, transcript):
    """P10: nothing scales, and there is no such environment."""
    written("unscaled", {"nodes/a": encode(NodeRecord(host="h", projects=60, slots=64))})
    transcript("scaling")
    transcript("scaling", "--env", "nowhere")
    transcript.check()
