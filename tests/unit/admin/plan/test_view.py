"""The view of `evenlane plan`, from etcd listings alone (E7)."""

import json

import pytest

from evenlane.engine.admin.plan.view import view
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.quota.topics.topic import accept, complete, encode, parse_spec

CLUSTER_CONFIG = ClusterConfig(partitions=4, priorities=("high", "low"))


def topic(**fields):
    return encode(accept(complete(parse_spec(json.dumps(fields).encode()), CLUSTER_CONFIG), 5, None))


def values(**changes):
    """Return the values of two nodes by key. Only `b` has not carried out generation 7 yet."""
    found = {
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
    found |= {key.replace("__", "/"): value for key, value in changes.items()}
    return {key: value for key, value in found.items() if value is not None}


def document(**changes):
    return view("online", CLUSTER_CONFIG, values(**changes)).document


def node(name, **changes):
    return next(each for each in document(**changes)["nodes"] if each["id"] == name)


def test_document_has_nodes_partitions_and_loads():
    """E7: sha256("acme") mod 4 is 3, so all of acme's load and its 2 groups x 2 priorities are a's."""
    shown, problems = view("online", CLUSTER_CONFIG, values())
    assert [] == problems
    assert {
        "env": "online", "subscription": None, "generation": 7, "leader": "b", "partitions": 4, "unowned": [2],
        "corrupt": 0, "handlers_differ": None,
        "nodes": [
            {
                "id": "a", "partitions": [0, 3], "owns": [0, 3], "qps": 100.0, "queues": 4, "done_generation": 7,
                "host": "h1", "cpu": 0.0, "cores": 0.0, "projects": 0, "in_flight": 0, "leaving": False,
                "passed_over": 0, "handlers": "", "zone": "",
            },
            {
                "id": "b", "partitions": [1, 2], "owns": [1], "qps": 0, "queues": 0, "done_generation": 6,
                "host": "h2", "cpu": 0.5, "cores": 0.0, "projects": 3, "in_flight": 9, "leaving": True,
                "passed_over": 0, "handlers": "", "zone": "",
            },
        ],
    } == shown  # fmt: skip


def test_unchanged_older_plan_counts_as_the_newest_generation():
    """E7: a's plan is of generation 5, as only plans that change are written."""
    assert 7 == node("a")["done_generation"]
    assert 4 == node("a", done__a=b'{"generation": 4}')["done_generation"]
    assert 0 == node("a", done__a=None)["done_generation"]
    assert 7 == node("b", done__b=b'{"generation": 7}')["done_generation"]


def test_new_node_without_a_plan_has_nothing():
    """Z3."""
    new = node("c", nodes__c=b'{"host": "h3"}')
    assert ([], [], 0, 0) == (new["partitions"], new["owns"], new["qps"], new["done_generation"])


def test_all_partitions_are_unowned_without_nodes():
    """E14: plan keys outlive their nodes."""
    gone = dict.fromkeys(
        ["leader", "nodes__a", "nodes__b", "owners__0", "owners__1", "owners__3", "done__a", "done__b"]
    )
    shown = document(**gone)
    assert ([], None, [0, 1, 2, 3], 7) == (shown["nodes"], shown["leader"], shown["unowned"], shown["generation"])


def test_newest_generation_may_be_in_a_plan_only():
    assert 7 == document(generation=None)["generation"]
    assert 9 == document(generation=b'{"generation": 9}')["generation"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("owners/2", b"{", "/evenlane/online/owners/2 is not valid"),
        ("owners/2", b'{"epoch": 1}', "/evenlane/online/owners/2 is not valid"),
        ("owners/4", b'{"id": "a"}', "/evenlane/online/owners/4 is not a partition"),
        ("owners/-1", b'{"id": "a"}', "/evenlane/online/owners/-1 is not a partition"),
        ("owners/\u00b2", b'{"id": "a"}', "is not a partition"),
        ("nodes/a", b"\xff", "/evenlane/online/nodes/a is not valid"),
        ("plan/c", b'{"generation": "x", "partitions": []}', "/evenlane/online/plan/c is not valid"),
        ("leader", b"[]", "/evenlane/online/leader is not valid"),
        ("generation", b"NaN", "/evenlane/online/generation is not valid"),
        ("done/c", b"1" * (1 << 21), ""),
        ("accepted/bad", b"{}", "/evenlane/online/accepted/bad is not valid"),
        ("accepted/bad", b"[" * 100_000, "/evenlane/online/accepted/bad is not valid"),
    ],
)
def test_corrupted_value_is_skipped_named_and_counted(key, value, text):
    shown, problems = view("online", CLUSTER_CONFIG, values() | {key: value})
    is_read = key != "done/c"  # there is no node c
    assert (shown["corrupt"], len(problems)) == (is_read, is_read)
    assert all(text in problem for problem in problems)
    assert ["a", "b"] == [each["id"] for each in shown["nodes"]]
    assert [2] == shown["unowned"]


def test_plan_with_invalid_partitions_is_named():
    shown, problems = view(
        "online", CLUSTER_CONFIG, values() | {"plan/a": b'{"generation": 5, "partitions": [0, 4, -1]}'}
    )
    assert ([0], 1) == (shown["nodes"][0]["partitions"], shown["corrupt"])
    assert ["/evenlane/online/plan/a names partitions that don't exist: there are 4"] == problems


def test_named_subscription_has_nodes_of_its_own():
    """K10: with its own quota of a topic, and the load of its projects; the unnamed one's keys count for nothing."""
    own = {
        "generation": b'{"generation": 3, "strategy": "bounded-ring"}', "leader": b'{"id": "x", "since": ""}',
        "nodes/x": b'{"host": "h3"}', "plan/x": b'{"generation": 3, "partitions": [0, 1, 2, 3]}',
        "done/x": b'{"generation": 3}', "owners/3": b'{"id": "x", "epoch": 9}',
    }  # fmt: skip
    changes = {f"subscription/audit/{key}": value for key, value in own.items()}
    changes["accepted/acme"] = topic(qps=100, groups=2, spread=1, subscriptions={"audit": {"qps": 20}})
    changes["accepted/other"] = topic(qps=1_000)
    changes["subscriptions"] = b'{"subscriptions": {"audit": {"state": "active", "projects": ["ac*"]}}}'
    shown = view("online_audit", CLUSTER_CONFIG, values() | changes).document
    assert ("online", "audit", 3, "x") == tuple(shown[key] for key in ("env", "subscription", "generation", "leader"))
    assert [("x", [0, 1, 2, 3], [3], 20.0)] == [
        (node["id"], node["partitions"], node["owns"], node["qps"]) for node in shown["nodes"]
    ]
    assert [0, 1, 2] == shown["unowned"]
