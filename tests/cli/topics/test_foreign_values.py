"""`evenlane topics` on a real etcd with values that others wrote, or that no leader has accepted."""

import json

import pytest

pytestmark = pytest.mark.real


def listed(topics):
    return {line.split()[0]: line for line in topics("list")[1].splitlines()}


def test_spec_under_an_invalid_name_is_listed(topics, by_hand):
    """Fault 20"""
    by_hand("topics", "x\x1b[2Jy", b'{"qps": 5}')
    _, out, err = topics("list")
    assert "'x\\x1b[2Jy'" in out
    assert "no: project 'x\\x1b[2Jy' is not valid: 1 to 64 letters" in out
    assert "note: 1 spec is rejected" in err


def test_invalid_spec_is_shown_as_written(topics, by_hand):
    """Fault 19"""
    by_hand("topics", "acme", b'{"qps": -1, "qsp": 7}')
    by_hand("topics", "text", b"qps: 5")
    assert {"qps": -1, "qsp": 7} == json.loads(topics("get", "acme", "--json")[1])["wish"]
    rows = [line.split() for line in topics("get", "acme")[1].splitlines()]
    assert [["qps", "-", "-1"], ["qsp", "-", "7"]] == rows[1:3]
    assert ["acme", "-1"] == listed(topics)["acme"].split()[:2]
    assert "qps: 5" == json.loads(topics("get", "text", "--json")[1])["wish"]
    assert ["(not", "an", "object)", "-", "qps:", "5"] in [
        line.split() for line in topics("get", "text")[1].splitlines()
    ]


def test_invalid_spec_is_shown_next_to_the_accepted_topic(topics, by_hand):
    topics("set", "acme", "--qps", "100")
    by_hand("topics", "acme", b'{"qps": -1, "qsp": 7}')
    rows = [line.split() for line in topics("get", "acme")[1].splitlines()]
    assert ["qps", "100", "-1"] in rows
    assert ["qsp", "-", "7"] in rows


def test_repair_of_invalid_spec_changes_the_accepted_topic(topics, by_hand):
    topics("set", "acme", "--qps", "100", "--concurrency", "5")
    by_hand("topics", "acme", b'{"qps": -1}')
    code, out, err = topics("set", "acme", "--qps", "200", "--json")
    assert (0, {"qps": 200.0, "concurrency": 5}) == (code, json.loads(out)["wish"])
    assert err.startswith("note: the spec of topic acme was rejected (qps must be a number from 0.01")
    assert err.endswith("has been replaced: the change was made to the topic in effect instead\n")


def test_unreadable_accepted_topic_is_reported(topics, by_hand, own_env):
    topics("set", "acme", "--qps", "100")
    by_hand("accepted", "acme", b"rubbish")
    assert "no: the accepted value can't be read (it is not JSON" in listed(topics)["acme"]
    assert listed(topics)["acme"].endswith("and the leader has not yet rewritten it")
    assert "it is not JSON" in json.loads(topics("get", "acme", "--json")[1])["damage"]
    by_hand("topics", "acme", None)
    assert "and there is no spec to restore it from" in listed(topics)["acme"]
    assert f": `evenlane topics set acme --qps 100 --env {own_env}` creates a new one\n" in topics("get", "acme")[2]
    assert (1, "") == topics("delete", "acme")[:2]
    assert 0 == topics("set", "acme", "--qps", "7")[0]


def test_suggested_commands_have_the_environment(topics, own_env):
    topics("set", "acme", "--qps", "100")
    out = topics("delete", "acme")[1]
    assert f"`evenlane topics drain acme --env {own_env}` has them handled" in out
    assert f"`evenlane backlog purge acme --env {own_env}` drops them" in out
    code, out, err = topics("delete", "acme")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert "topic acme was already deleted: puts are refused, and waiting messages are kept and paused" in err
    assert f"`evenlane topics drain acme --env {own_env}`" in err


def test_pending_spec_is_reported_with_a_command(topics, by_hand, own_env):
    by_hand("topics", "acme", b'{"qps": 5}')
    assert "no: the leader has not yet processed it" in listed(topics)["acme"]
    assert f"`evenlane topics get acme --env {own_env}` shows when it has" in topics("get", "acme")[2]
