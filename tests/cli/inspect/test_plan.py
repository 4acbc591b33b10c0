"""`evenlane plan` on a real etcd, and `plan simulate`, which needs none."""

import asyncio
import json
from functools import partial

import pytest

from evenlane.engine.base.config.settings import load
from evenlane.engine.base.names import key
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import ClusterConfig, agree_cluster_config
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


def test_a_fleet_of_the_largest_size(plan):
    """E6, P13: the figures of issue 4."""
    fleet = ("--nodes", "300", "--projects", "3000", "--partitions", "4096")
    told = simulated(plan, *fleet, "--join")
    assert {
        "nodes", "projects", "partitions", "change", "seed", "strategy", "groups", "max_over_mean",
        "count_max_over_mean", "moved", "moved_over_ideal", "seconds", "blast_radius",
    } == set(told)  # fmt: skip
    assert 55_000 <= told["groups"] <= 65_000
    assert 1.0 <= told["max_over_mean"] <= 1.05
    assert 0.8 <= told["moved_over_ideal"] <= 1.1
    assert pytest.approx(told["moved"] * 301 / 4096, abs=1e-3) == told["moved_over_ideal"]
    assert 0 < told["blast_radius"]["mean"] <= 0.1
    assert 0 < told["seconds"] < 30
    assert 1.0 <= simulated(plan, *fleet, "--leave")["moved_over_ideal"] <= 1.6


def test_without_a_change_nothing_moves(plan):
    told = simulated(plan, "--nodes", "8", "--projects", "100")
    assert (0, 0.0, 128, None, "bounded-ring") == tuple(
        told[name] for name in ("moved", "moved_over_ideal", "partitions", "change", "strategy")
    )


def test_the_same_seed_gives_the_same_and_another_one_another(plan):
    fleet = ("--nodes", "4", "--projects", "50", "--join")
    one, again, other = (simulated(plan, *fleet, "--seed", seed) for seed in ("1", "1", "2"))
    assert one["groups"] != other["groups"]
    assert {**one, "seconds": 0} == {**again, "seconds": 0}


def test_other_strategies_move_far_more(plan):
    """E6: what the ring is for."""
    told = simulated(plan, "--nodes", "8", "--projects", "100", "--join", "--strategy", "round-robin")
    assert told["moved_over_ideal"] > 3


def test_no_project_is_no_load(plan):
    told = simulated(plan, "--nodes", "3", "--projects", "0", "--leave")
    assert (0, None, None, 1.0) == (
        told["groups"], told["max_over_mean"], told["blast_radius"], told["count_max_over_mean"]
    )  # fmt: skip


def test_too_few_partitions_are_warned_of(plan):
    """P1: on stderr, so that JSON stays one document."""
    code, out, err = plan("simulate", "--nodes", "64", "--projects", "10", "--join", "--json")
    assert (0, 65) == (code, json.loads(out)["nodes"] + 1)
    assert "fewer than twice the 65 nodes" in err
    assert "130 are the least, 650 make it even" in err
    code, out, err = plan("simulate", "--nodes", "64", "--projects", "10")
    assert "128 partitions are fewer than 10 for each of 64 nodes" in err
    assert ["nodes", "64"] in [line.split() for line in out.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nodes", "3", "--projects", "1", "--join", "--leave"], "can't be simulated together"),
        (["--nodes", "0", "--projects", "1"], "--nodes must be 1 to 10,000, not 0"),
        (["--nodes", "-5", "--projects", "1"], "--nodes must be 1 to 10,000, not -5"),
        (["--nodes", "3", "--projects", "-1"], "--projects must be 0 to"),
        (["--nodes", "3", "--projects", "1", "--partitions", "0"], "--partitions must be 1 to"),
        (["--nodes", "1", "--projects", "1", "--leave"], "--leave needs at least 2 nodes"),
        (["--nodes", "3", "--projects", "1", "--strategy", "modulo"], "--strategy must be one of bounded-ring, range"),
        (["--nodes", "many", "--projects", "1"], "Invalid value for '--nodes'"),
        (["--projects", "1"], "Missing option '--nodes'"),
        (["--nodes", "1"], "Missing option '--projects'"),
        (["--nodes", "1", "--projects", "1", "extra"], "extra"),
    ],
)
def test_wrong_use_is_one_sentence(plan, arguments, sentence):
    code, out, err = plan("simulate", *arguments)
    assert (2, "", 1) == (code, out, err.count("\n"))
    assert sentence in err


@pytest.mark.parametrize("command", [[], ["show"], ["simulate"]])
def test_help_has_an_example(plan, command):
    code, out, err = plan(*command, "--help")
    assert (0, "") == (code, err)
    assert ("Example:\n    evenlane plan" in out) == bool(command)


# ---- show


@pytest.fixture
def written(etcd, monkeypatch):
    """Writes the settings of an environment of 4 partitions, and these values."""
    monkeypatch.setenv("EVENLANE_ETCD", etcd.endpoint)

    def write(env, values):
        monkeypatch.setenv("EVENLANE_ENV", env)

        async def put():
            client = connections.etcd(load({}).settings)
            await agree_cluster_config(client, env, {"partitions": 4})
            for name, value in values.items():
                await client.put(key(env, name), value)
            await client.close()

        asyncio.run(put())

    return write


CLUSTER = {
    "generation": encode(GenerationRecord(generation=2)),
    "leader": encode(LeaderRecord(id="a")),
    "nodes/a": encode(NodeRecord(host="h1", cpu=0.25)),
    "plan/a": encode(PlanRecord(generation=2, partitions=[0, 1, 2, 3])),
    "done/a": encode(DoneRecord(generation=2)),
    **{f"owners/{partition}": encode(OwnerRecord(id="a", epoch=1)) for partition in range(3)},
}


@pytest.mark.real
def test_a_cluster_is_shown(plan, written):
    """E7."""
    written("shown", CLUSTER)
    code, out, err = plan("--json")
    assert (0, "") == (code, err)
    told = json.loads(out)
    assert (2, "a", 4, [3], 0) == tuple(
        told[name] for name in ("generation", "leader", "partitions", "unowned", "corrupt")
    )
    assert [("a", [0, 1, 2, 3], [0, 1, 2], 2)] == [
        (node["id"], node["partitions"], node["owns"], node["done_generation"]) for node in told["nodes"]
    ]
    assert (code, out, err) == plan("show", "--json")
    lines = [line.split() for line in plan()[1].splitlines()]
    assert "shown: 4 partitions, 1 node, generation 2, led by a" == " ".join(lines[0])
    assert ["a", "4", "3", "0", "0", "2", "25%", "0", "0", "h1"] == lines[2]
    assert "1 of 4 partitions is owned by nobody at this moment: 3" == " ".join(lines[3])


@pytest.mark.real
def test_where_no_node_runs_it_says_so(plan, written):
    """E7, E14."""
    written("empty", {})
    code, out, err = plan("show", "--json")
    told = json.loads(out)
    assert (0, "", [], [0, 1, 2, 3], None) == (code, err, told["nodes"], told["unowned"], told["leader"])
    code, out, err = plan()
    assert (0, "") == (code, err)
    assert "no node runs: `evenlane run --handler MODULE:FUNCTION --env empty` starts one" in out
    assert "4 of 4 partitions are owned by nobody at this moment: 0, 1, 2, 3\n" in out


@pytest.mark.real
def test_too_many_nodes_are_warned_of(plan, written):
    """P1, Z3: 3 nodes on 4 partitions."""
    written("crowded", {f"nodes/{name}": encode(NodeRecord()) for name in "abc"})
    code, out, err = plan("--json")
    assert (0, ["a", "b", "c"]) == (code, [node["id"] for node in json.loads(out)["nodes"]])
    assert err.startswith("evenlane: warning: 4 partitions are fewer than twice the 3 nodes")
    assert 1 == err.count("\n")


@pytest.mark.real
def test_corrupt_values_are_named_on_stderr(plan, written):
    written("spoilt", CLUSTER | {"owners/3": b"junk", "leader": b"{}"})
    code, out, err = plan("--json")
    told = json.loads(out)
    assert (0, 2, None, [3]) == (code, told["corrupt"], told["leader"], told["unowned"])
    assert 2 == err.count("\n") == err.count("(passed over)")
    assert "/evenlane/spoilt/owners/3 is not valid" in err


@pytest.mark.real
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--env", "nowhere"], 1, "environment 'nowhere' is not there"),
        (["show", "--env", "nowhere", "--json"], 1, "environment 'nowhere' is not there"),
        (["--etcd", "127.0.0.1:1"], 1, "etcd at 127.0.0.1:1 does not answer"),
        (["--env", "a/b"], 2, "'a/b' is not valid"),
        (["shw"], 2, "No such command 'shw'"),
    ],
)
def test_what_is_wrong_is_one_sentence(plan, written, arguments, code, sentence):
    written("other", {})
    assert code == (told := plan(*arguments))[0]
    assert ("", 1) == (told[1], told[2].count("\n"))
    assert sentence in told[2]


def test_the_defaults_are_those_of_an_environment(plan):
    assert ClusterConfig().partitions == simulated(plan, "--nodes", "2", "--projects", "1")["partitions"]
