"""`evenlane topics` on a real etcd."""

import asyncio
import json

import pytest

from engine.cli.main import run
from engine.servers import EtcdServer

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), fast=True)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture
def topics(etcd, request, monkeypatch, tmp_path, capsys):
    """Runs `evenlane topics ...`: (exit code, stdout, stderr)."""
    monkeypatch.setenv("EVENLANE_ETCD", etcd.endpoint)
    monkeypatch.setenv("EVENLANE_ENV", f"e{abs(hash(request.node.name)) % 10**9}")
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = run(["topics", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_a_topic_is_made_shown_and_listed(topics):
    assert (0, "acme: 100 QPS in 2 groups, active, accepted\n", "") == topics("set", "acme", "--qps", "100")
    code, out, err = topics("get", "acme")
    rows = [line.split() for line in out.splitlines()]
    assert (0, "", ["FIELD", "IN", "FORCE", "WISHED"]) == (code, err, rows[0])
    assert ["qps", "100", "100"] in rows
    assert ["weight", "100"] in rows
    code, out, err = topics("list")
    assert [
        ["PROJECT", "QPS", "GROUPS", "BURST", "WEIGHT", "SPREAD", "STATE", "ACCEPTED"],
        ["acme", "100", "2", "1", "100", "12", "active", "yes"],
    ] == [line.split() for line in out.splitlines()]


def test_json_is_one_document(topics):
    code, out, err = topics("set", "acme", "--qps", "100", "--ttl", "1d", "--no-borrow", "--json")
    document = json.loads(out)
    assert (0, "") == (code, err)
    assert ("acme", True, None, 86_400.0, False) == (
        document["project"], document["accepted"], document["problem"],
        document["in_force"]["ttl"], document["in_force"]["borrow"],
    )  # fmt: skip
    assert {"qps": 100.0, "ttl": 86_400.0, "borrow": False} == document["wish"]
    assert document == json.loads(topics("get", "acme", "--json")[1])
    assert {"topics": [document]} == json.loads(topics("list", "--json")[1])


def test_every_field_can_be_set_and_be_given_its_default_again(topics):
    numbers = ("qps", "groups", "burst", "weight", "reserve", "concurrency", "spread", "max-attempts", "max-backlog")
    flags = [part for name in numbers for part in (f"--{name}", "5")]
    flags += ["--ttl", "2h", "--ack-wait", "30s", "--ordered", "--ageing", "0.1", "--state", "paused"]
    flags += ["--backoff-base", "2s", "--backoff-factor", "3", "--backoff-cap", "1m", "--backoff-jitter", "0"]
    flags += ["--push", '{"url": "http://x", "timeout": 5}', "--borrow"]
    code, out, err = topics("set", "acme", *flags, "--json")
    assert (0, "") == (code, err)
    wish = json.loads(out)["wish"]
    assert {name.replace("-", "_"): 5 for name in numbers}.items() <= wish.items()
    assert {"base": 2.0, "factor": 3.0, "cap": 60.0, "jitter": 0.0} == wish["backoff"]
    push = {"url": "http://x", "timeout": 5.0, "secret_ref": None, "headers": {}, "concurrency": None}
    assert (7_200.0, 30.0, True, 0.1, "paused", push) == tuple(
        wish[name] for name in ("ttl", "ack_wait", "ordered", "ageing", "state", "push")
    )
    assert "weight" not in json.loads(topics("set", "acme", "--weight", "default", "--json")[1])["wish"]


def test_pause_resume_drain_and_delete(topics):
    topics("set", "acme", "--qps", "100")
    for verb, state in (("pause", "paused"), ("resume", "active"), ("drain", "draining")):
        assert (0, f"acme: 100 QPS in 2 groups, {state}, accepted\n", "") == topics(verb, "acme")
    assert (0, "acme: deleted\n", "") == topics("delete", "acme")
    assert "draining  deleted" in topics("list")[1]
    assert 1 == topics("delete", "acme")[0]


def test_a_file_makes_many(topics, tmp_path):
    (tmp_path / "t.toml").write_text("[a]\nqps = 1\n[b]\nqps = 2\nordered = true\n")
    assert (0, "applied 2, accepted 2\n", "") == topics("apply", "t.toml")
    (tmp_path / "t.json").write_text('{"b": {"qps": 3}, "c": {"qps": 4}}')
    code, out, _ = topics("apply", "t.json", "--json")
    assert (0, {"applied": 2, "accepted": 2, "waiting": []}) == (code, json.loads(out))
    listed = json.loads(topics("list", "--json")[1])["topics"]
    assert {"a": {"qps": 1.0}, "b": {"qps": 3.0}, "c": {"qps": 4.0}} == {t["project"]: t["wish"] for t in listed}


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["set", "acme"], 2, "topic acme: nothing is named to be set, such as --qps 100"),
        (["set", "acme", "--weight", "2"], 2, "topic acme: qps is missing"),
        (["set", "acme", "--qps", "many"], 2, "topic acme: --qps 'many' is not a number"),
        (["set", "acme", "--qps", "nan"], 2, "topic acme: qps must be a number from 0.01 to 1,000,000, not NaN"),
        (["set", "acme", "--qps", "1e400"], 2, "topic acme: qps must be a number"),
        (["set", "acme", "--qps", "1", "--ttl", "soon"], 2, "topic acme: --ttl 'soon' is not a duration"),
        (["set", "acme", "--qps", "1", "--push", "{"], 2, "topic acme: --push '{' is not JSON such as '{"),
        (["set", "acme", "--qps", "1", "--push", '{"url": "x"}'], 2, "topic acme: push.url must begin with http"),
        (["set", "acme", "--qps", "1", "--state", "off"], 2, "topic acme: state must be one of active, paused"),
        (["set", "acme", "--qps", "1", "--burst", "1.5"], 2, "topic acme: burst must be a whole number"),
        (["set", "a b", "--qps", "1"], 2, "project 'a b' is not valid"),
        (["get", "nobody"], 1, "project 'nobody' has no topic"),
        (["pause", "nobody"], 1, "project 'nobody' has no topic"),
        (["delete", "nobody"], 1, "project 'nobody' has no topic"),
        (["apply", "none.toml"], 2, "none.toml can't be read"),
        (["list", "--etcd", "127.0.0.1:1"], 1, "etcd at 127.0.0.1:1 does not answer"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_right_code(topics, arguments, code, sentence):
    done, out, err = topics(*arguments)
    assert (code, "", 1) == (done, out, err.count("\n"))
    assert sentence in err
