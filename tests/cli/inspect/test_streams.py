"""`evenlane streams` on a real server. tests/ledger/test_nats_cluster.py migrates on three."""

import json

import pytest

pytestmark = pytest.mark.real


@pytest.fixture
def prepared(env, evenlane):
    """An environment whose streams exist: a put creates those of its partition."""
    assert 0 == evenlane("put", "acme", "hello")[0]
    return env


def test_list_shows_each_kind_with_its_replicas(prepared, evenlane):
    """P11."""
    code, out, err = evenlane("streams", "list")
    assert (0, "") == (code, err)
    header, *rows = [line.split() for line in out.splitlines()]
    assert ["STREAMS", "NUMBER", "REPLICAS", "INCOMPLETE"] == header
    assert {"LANES_*", "SETTLED_*"} <= {row[0] for row in rows}
    assert {("1", "0")} == {(row[2], row[3]) for row in rows}
    document = json.loads(evenlane("streams", "list", "--json")[1])
    assert prepared == document["env"]
    assert {(1, 1, True)} == {(each["replicas"], each["current"], each["complete"]) for each in document["streams"]}
    assert sum(int(row[1]) for row in rows) == len(document["streams"])


def test_migration_needs_a_cluster(prepared, evenlane):
    """P11: one clear sentence, and nothing is changed."""
    code, out, err = evenlane("streams", "migrate", "--replicas", "3")
    assert (1, "") == (code, out)
    assert "can't have 3 replicas: this NATS server isn't part of a cluster" in err
    assert (0, "changed 0 streams: all have 1 replica\n", "") == evenlane("streams", "migrate", "--replicas", "1")


@pytest.mark.parametrize("replicas", ["0", "6", "three"])
def test_number_of_replicas_is_checked(env, evenlane, replicas):
    code, _, err = evenlane("streams", "migrate", "--replicas", replicas)
    assert code == 2
    assert replicas in err


def test_environment_without_streams(env, evenlane):
    code, _, err = evenlane("streams", "migrate", "--replicas", "3")
    assert code == 1
    assert f"environment '{env}' has no streams" in err


def test_memory_has_no_replicas(evenlane):
    code, _, err = evenlane("streams", "list", "--store", "memory://")
    assert code == 2
    assert "this command can't reach" in err
