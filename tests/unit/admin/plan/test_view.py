"""What `evenlane plan` shows, from listings alone (E7)."""

import json

import pytest

from evenlane.engine.admin.plan.view import view
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.quota.topics.topic import accept, complete, encode, parse_spec

CLUSTER_CONFIG = ClusterConfig(partitions=4, priorities=("high", "low"))


def topic(**fields):
    return encode(accept(complete(parse_spec(json.dumps(fields).encode()), CLUSTER_CONFIG), 5, None))


def values(**changes):
    """Two nodes, `b` alone still under way with generation 7; written as etcdctl would show it."""
    reported = {
        "settings": b"{}",
        "generation": b'{"generation": 7, "strategy": "bounded-ring"}',
        "leader": b'{"id": "b", "since": "2026-01-01T00:00:00Z"}',
        "nodes/b": b'{"host": "h2", "cpu": 0.5, "projects": 3, "in_flight": 9, "leaving": true}',
        "nodes/a": b'{"host": "h1"}',
        "plan/a": b'{"generation": 5, "partitions": [3, 0]}',
        "plan/b": b'{"generation": 7, "partitions": [1, 2]}',
        "done/a": b'{"generation": 5}',
        "done/b": b'{"generation": 6}',
        "owners/0": b'{"id": "a", "epoch": 3}',
        "owners/3": b'{"id": "a", "epoch": 3}',
        "owners/1": b'{"id": "b", "epoch": 4}',
        "accepted/acme": topic(qps=100, groups=2, spread=1),
        "topics/acme": b"not looked at",
        "held/1/4": b"not looked at",
    }
    reported |= {key.replace("__", "/"): value for key, value in changes.items()}
    return {key: value for key, value in reported.items() if value is not None}


def document(**changes):
    return view("online", CLUSTER_CONFIG, values(**changes)).document


def node(name, **changes):
    return next(each for each in document(**changes)["nodes"] if each["id"] == name)


def test_the_document():
    """E7: sha256("acme") mod 4 is 3, so all of acme's load and its 2 groups x 2 priorities are a's."""
    reported, problems = view("online", CLUSTER_CONFIG, values())
    assert [] == problems
    assert {
        "env": "online", "generation": 7, "leader": "b", "partitions": 4, "unowned": [2], "corrupt": 0,
        "nodes": [
            {
                "id": "a", "partitions": [0, 3], "owns": [0, 3], "qps": 100.0, "queues": 4, "done_generation": 7,
                "host": "h1", "cpu": 0.0, "projects": 0, "in_flight": 0, "leaving": False, "passed_over": 0,
            },
            {
                "id": "b", "partitions": [1, 2], "owns": [1], "qps": 0, "queues": 0, "done_generation": 6,
                "host": "h2", "cpu": 0.5, "projects": 3, "in_flight": 9, "leaving": True, "passed_over": 0,
            },
        ],
    } == reported  # fmt: skip


def test_only_plans_that_change_are_written_so_an_old_one_carried_out_is_the_newest():
    """E7: a's plan is of generation 5."""
    assert 7 == node("a")["done_generation"]
    assert 4 == node("a", done__a=b'{"generation": 4}')["done_generation"]
    assert 0 == node("a", done__a=None)["done_generation"]
    assert 7 == node("b", done__b=b'{"generation": 7}')["done_generation"]


def test_a_newcomer_without_a_plan_has_nothing():
    """Z3."""
    new = node("c", nodes__c=b'{"host": "h3"}')
    assert ([], [], 0, 0) == (new["partitions"], new["owns"], new["qps"], new["done_generation"])


def test_where_no_node_runs_all_is_unowned():
    """E14: plan keys outlive their nodes."""
    gone = dict.fromkeys(
        ["leader", "nodes__a", "nodes__b", "owners__0", "owners__1", "owners__3", "done__a", "done__b"]
    )
    reported = document(**gone)
    assert ([], None, [0, 1, 2, 3], 7) == (
        reported["nodes"],
        reported["leader"],
        reported["unowned"],
        reported["generation"],
    )


def test_the_newest_generation_may_stand_in_a_plan_only():
    assert 7 == document(generation=None)["generation"]
    assert 9 == document(generation=b'{"generation": 9}')["generation"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("owners/2", b"{", "/evenlane/online/owners/2 is not valid"),
        ("owners/2", b'{"epoch": 1}', "/evenlane/online/owners/2 is not valid"),
        ("owners/4", b'{"id": "a"}', "/evenlane/online/owners/4 is no partition"),
        ("owners/-1", b'{"id": "a"}', "/evenlane/online/owners/-1 is no partition"),
        ("owners/\u00b2", b'{"id": "a"}', "is no partition"),
        ("nodes/a", b"\xff", "/evenlane/online/nodes/a is not valid"),
        ("plan/c", b'{"generation": "x", "partitions": []}', "/evenlane/online/plan/c is not valid"),
        ("leader", b"[]", "/evenlane/online/leader is not valid"),
        ("generation", b"NaN", "/evenlane/online/generation is not valid"),
        ("done/c", b"1" * (1 << 21), ""),
        ("accepted/bad", b"{}", "/evenlane/online/accepted/bad is not valid"),
        ("accepted/bad", b"[" * 100_000, "/evenlane/online/accepted/bad is not valid"),
    ],
)
def test_what_is_corrupt_is_passed_over_named_and_counted(key, value, text):
    reported, problems = view("online", CLUSTER_CONFIG, values() | {key: value})
    asked_for = key != "done/c"  # of a node that isn't there
    assert (reported["corrupt"], len(problems)) == (asked_for, asked_for)
    assert all(text in problem for problem in problems)
    assert ["a", "b"] == [each["id"] for each in reported["nodes"]]
    assert [2] == reported["unowned"]


def test_a_plan_with_partitions_that_are_none():
    reported, problems = view(
        "online", CLUSTER_CONFIG, values() | {"plan/a": b'{"generation": 5, "partitions": [0, 4, -1]}'}
    )
    assert ([0], 1) == (reported["nodes"][0]["partitions"], reported["corrupt"])
    assert ["/evenlane/online/plan/a names partitions that don't exist: there are 4"] == problems
