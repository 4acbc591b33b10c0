"""`evenlane plan` on a real etcd, and `evenlane plan simulate` without servers."""

import json
from functools import partial

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.ring.membership.records import (
    DoneRecord,
    GenerationRecord,
    LeaderRecord,
    NodeRecord,
    OwnerRecord,
    PlanRecord,
    encode,
)


@pytest.fixture
def plan(evenlane):
    """Runs `evenlane plan ...`: (exit code, stdout, stderr)."""
    return partial(evenlane, "plan")


# ---- simulate


def simulated(plan, *arguments):
    code, out, err = plan("simulate", "--json", *arguments)
    assert (0, "") == (code, err)
    return json.loads(out)


def test_largest_fleet_is_even_and_moves_few_partitions(plan):
    """E6, P13"""
    fleet = ("--nodes", "300", "--projects", "3000", "--partitions", "4096", "--layout", "consecutive")
    reported = simulated(plan, *fleet, "--join")
    assert {
        "nodes", "projects", "partitions", "change", "seed", "strategy", "groups", "max_over_mean",
        "count_max_over_mean", "moved", "moved_over_ideal", "seconds", "blast_radius", "layout", "zones", "zone_share",
        "gathered",
    } == set(reported)  # fmt: skip
    assert 55_000 <= reported["groups"] <= 65_000
    assert 1.0 <= reported["max_over_mean"] <= 1.05
    assert 0.8 <= reported["moved_over_ideal"] <= 1.1
    assert pytest.approx(reported["moved"] * 301 / 4096, abs=1e-3) == reported["moved_over_ideal"]
    radius = reported["blast_radius"]
    assert 0 < radius["mean"] <= 0.02
    assert 0.1 <= radius["largest_mean"] <= 0.14
    assert radius["largest_mean"] <= radius["max"] <= 0.2
    assert round(radius["max"] * 301) == radius["nodes_max"]
    assert 0 < reported["seconds"] < 30
    assert 1.0 <= simulated(plan, *fleet, "--leave")["moved_over_ideal"] <= 1.6


def test_restarted_fleet_is_gathered(plan, transcript):
    """P13: rest brings large projects back to few nodes, by few moves at a time."""
    fleet = ("--nodes", "8", "--projects", "300", "--layout", "consecutive", "--restart")
    reported = simulated(plan, *fleet)
    gathered = reported["gathered"]
    assert 1.0 <= reported["moved_over_ideal"] <= 1.3
    assert gathered["blast_radius"]["largest_mean"] <= 0.7 * reported["blast_radius"]["largest_mean"]
    assert gathered["steps"] <= gathered["moved"] <= 128
    assert gathered["most_moved_at_once"] <= 128 // 8
    assert gathered["max_over_mean"] <= gathered["worst_max_over_mean"] <= 1.05
    _code, out, _err = transcript("plan", "simulate", *fleet)
    took = next(line for line in out.splitlines() if line.startswith("seconds"))
    transcript.words[took] = "seconds SECONDS"
    transcript.check()


def test_hashed_layout_is_not_gathered(plan):
    """P13: no placement could."""
    reported = simulated(plan, "--nodes", "8", "--projects", "100", "--restart")
    assert (0, 0, 0) == tuple(reported["gathered"][name] for name in ("steps", "moved", "minutes"))
    assert reported["blast_radius"] == reported["gathered"]["blast_radius"]


def test_hashed_layout_puts_large_projects_on_most_nodes(plan):
    """P13: the control."""
    reported = simulated(plan, "--nodes", "20", "--projects", "1000", "--partitions", "320")
    assert reported["blast_radius"]["largest_mean"] > 0.7


def test_zones_share_each_project(plan):
    """C2: with three zones, no large project has much more than a third of its partitions in one of them."""
    fleet = ("--nodes", "21", "--projects", "1000", "--partitions", "336", "--zones", "3", "--layout", "consecutive")
    spread, gathered = simulated(plan, *fleet, "--strategy", "zones"), simulated(plan, *fleet)
    assert spread["zone_share"]["mean"] <= 0.5 < gathered["zone_share"]["mean"]
    assert spread["max_over_mean"] <= 1.07
    joined = simulated(plan, *fleet, "--strategy", "zones", "--join")
    assert joined["moved_over_ideal"] <= 2


def test_unchanged_fleet_moves_no_partition(plan):
    reported = simulated(plan, "--nodes", "8", "--projects", "100")
    assert (0, 0.0, 128, None, "bounded-ring") == tuple(
        reported[name] for name in ("moved", "moved_over_ideal", "partitions", "change", "strategy")
    )


def test_seed_decides_the_result(plan):
    fleet = ("--nodes", "4", "--projects", "50", "--join")
    one, again, other = (simulated(plan, *fleet, "--seed", seed) for seed in ("1", "1", "2"))
    assert one["groups"] != other["groups"]
    assert {**one, "seconds": 0} == {**again, "seconds": 0}


def test_round_robin_moves_far_more_partitions(plan):
    """E6: the ring moves few."""
    reported = simulated(plan, "--nodes", "8", "--projects", "100", "--join", "--strategy", "round-robin")
    assert reported["moved_over_ideal"] > 3


def test_fleet_without_projects_has_no_load(plan):
    reported = simulated(plan, "--nodes", "3", "--projects", "0", "--leave")
    assert (0, None, None, 1.0) == (
        reported["groups"], reported["max_over_mean"], reported["blast_radius"], reported["count_max_over_mean"]
    )  # fmt: skip


def test_simulation_warns_of_too_few_partitions(plan, transcript):
    """P1: on stderr, so that JSON stays one document."""
    code, out, err = plan("simulate", "--nodes", "64", "--projects", "10", "--join", "--json")
    assert (0, 65) == (code, json.loads(out)["nodes"] + 1)
    assert "fewer than twice the 65 nodes" in err
    assert "at least 130 are needed, and 650 for an even load" in err
    code, out, err = transcript("plan", "simulate", "--nodes", "64", "--projects", "10")
    took = next(line.split()[1] for line in out.splitlines() if line.startswith("seconds"))
    transcript.words[f"seconds              {took}"] = "seconds              SECONDS"
    transcript.check()


WRONG = r"""
plan simulate --nodes 3 --projects 1 --join --leave
plan simulate --nodes 3 --projects 1 --leave --restart
plan simulate --nodes 0 --projects 1
plan simulate --nodes -5 --projects 1
plan simulate --nodes 3 --projects -1
plan simulate --nodes 3 --projects 1 --partitions 0
plan simulate --nodes 1 --projects 1 --leave
plan simulate --nodes 1 --projects 1 --restart
plan simulate --nodes 3 --projects 1 --strategy modulo
plan simulate --nodes 3 --projects 1 --layout random
plan simulate --nodes 3 --projects 1 --zones 4
plan simulate --nodes many --projects 1
plan simulate --projects 1
plan simulate --nodes 1
plan simulate --nodes 1 --projects 1 extra
"""


def test_wrong_use_of_simulate_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()


# ---- show


CLUSTER = {
    "generation": encode(GenerationRecord(generation=2)),
    "leader": encode(LeaderRecord(id="a")),
    "nodes/a": encode(NodeRecord(host="h1", cpu=0.25)),
    "plan/a": encode(PlanRecord(generation=2, partitions=[0, 1, 2, 3])),
    "done/a": encode(DoneRecord(generation=2)),
    **{f"owners/{partition}": encode(OwnerRecord(id="a", epoch=1)) for partition in range(3)},
}


@pytest.mark.real
def test_plan_shows_nodes_and_owners(plan, written, transcript):
    """E7"""
    written("shown", CLUSTER, partitions=4)
    code, out, err = plan("--json")
    assert (0, "") == (code, err)
    reported = json.loads(out)
    assert (2, "a", 4, [3], 0) == tuple(
        reported[name] for name in ("generation", "leader", "partitions", "unowned", "corrupt")
    )
    assert [("a", [0, 1, 2, 3], [0, 1, 2], 2)] == [
        (node["id"], node["partitions"], node["owns"], node["done_generation"]) for node in reported["nodes"]
    ]
    assert (code, out, err) == plan("show", "--json")
    transcript("plan")
    transcript.check()


@pytest.mark.real
def test_plan_without_nodes_says_so(plan, written, transcript):
    """E7, E14"""
    written("empty", {}, partitions=4)
    code, out, err = plan("show", "--json")
    reported = json.loads(out)
    assert (0, "", [], [0, 1, 2, 3], None) == (code, err, reported["nodes"], reported["unowned"], reported["leader"])
    transcript("plan")
    transcript.check()


@pytest.mark.real
def test_plan_warns_of_too_many_nodes(plan, written):
    """P1, Z3: 3 nodes on 4 partitions."""
    written("crowded", {f"nodes/{name}": encode(NodeRecord()) for name in "abc"}, partitions=4)
    code, out, err = plan("--json")
    assert (0, ["a", "b", "c"]) == (code, [node["id"] for node in json.loads(out)["nodes"]])
    assert err.startswith("evenlane: warning: 4 partitions are fewer than twice the 3 nodes")
    assert 1 == err.count("\n")


@pytest.mark.real
def test_corrupt_records_are_named_on_stderr(plan, written):
    written("corrupted", CLUSTER | {"owners/3": b"junk", "leader": b"{}"}, partitions=4)
    code, out, err = plan("--json")
    reported = json.loads(out)
    assert (0, 2, None, [3]) == (code, reported["corrupt"], reported["leader"], reported["unowned"])
    assert 2 == err.count("\n") == err.count("(skipped)")
    assert "/evenlane/corrupted/owners/3 is not valid" in err


WRONG_SHOW = r"""
plan --env nowhere
plan show --env nowhere --json
plan --etcd 127.0.0.1:1
plan --env a/b
plan shw
"""


@pytest.mark.real
def test_error_of_show_is_one_sentence(written, transcript):
    written("other", {}, partitions=4)
    transcript.fail(WRONG_SHOW)
    transcript.check()


def test_simulation_has_the_default_partitions(plan):
    assert ClusterConfig().partitions == simulated(plan, "--nodes", "2", "--projects", "1")["partitions"]
