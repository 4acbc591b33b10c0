"""`evenlane topics template` on a real etcd."""

import asyncio
import inspect
import json
from functools import partial

import pytest

from evenlane.engine.cli.topics.templates import set_
from evenlane.quota.topics.fields import FIELDS
from evenlane.ring.coordination.etcd.client import EtcdCoordination

pytestmark = pytest.mark.real


@pytest.fixture
def template(on_etcd):
    """Runs `evenlane topics template ...`: (exit code, stdout, stderr)."""
    return partial(on_etcd, "topics", "template")


def test_made_shown_listed_and_deleted(template):
    told = template("set", "dev", "--match", "dev-*", "--qps", "10", "--limit", "2000")
    assert (0, "dev: 10 QPS for dev-*, at most 2,000 topics\n", "") == told
    rows = [line.split() for line in template("get", "dev")[1].splitlines()]
    assert [["match", "dev-*"], ["limit", "2000"], ["made", "0"], ["qps", "10"]] == [
        row for row in rows if row[0] in ("match", "limit", "made", "qps")
    ]
    assert [
        ["NAME", "MATCH", "QPS", "LIMIT", "MADE", "PROBLEM"], ["dev", "dev-*", "10", "2000", "0", "-"],
    ] == [line.split() for line in template("list")[1].splitlines()]  # fmt: skip
    assert (0, "dev: deleted\n", "") == template("delete", "dev")
    assert "NAME  MATCH  QPS  LIMIT  MADE  PROBLEM\n" == template("list")[1]


def test_only_what_is_named_changes_and_json_is_one_document(template):
    template("set", "dev", "--match", "dev-*", "--qps", "10", "--ttl", "1d")
    code, out, err = template("set", "dev", "--limit", "5", "--ttl", "default", "--backoff-base", "2", "--json")
    told = json.loads(out)
    assert (0, "") == (code, err)
    assert ("dev", "dev-*", 5, 0, None) == tuple(told[each] for each in ("name", "match", "limit", "made", "problem"))
    assert (10, 2) == (told["topic"]["qps"], told["topic"]["backoff"]["base"])
    assert "ttl" not in told["topic"]
    assert told == json.loads(template("get", "dev", "--json")[1])
    assert {"templates": [told]} == json.loads(template("list", "--json")[1])
    assert {"name": "dev", "deleted": True} == json.loads(template("delete", "dev", "--json")[1])


def test_it_has_all_fields_of_topics_set():
    options = set(inspect.signature(set_).parameters)
    assert set(FIELDS) - {"backoff"} <= options
    assert {"backoff_base", "backoff_factor", "backoff_cap", "backoff_jitter"} <= options
    assert options.isdisjoint({"project", "if_revision", "by"})


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["set", "a b", "--qps", "3"], 2, "template 'a b' is not valid"),
        (["set", "dev", "--match", "a.b"], 2, "template dev: match must be 1 to 64 letters"),
        (["set", "dev", "--qps", "x"], 2, "template dev: --qps 'x' is not a number"),
        (["set", "dev", "--qps", "-3"], 2, "template dev: qps must be a number from 0.01"),
        (["set", "dev", "--limit", "0"], 2, "template dev: limit must be a whole number"),
        (["set", "dev"], 2, "template dev: nothing is named to be set"),
        (["set", "dev", "--state", "draining"], 2, "template dev: topic.state can't be draining"),
        (["set", "dev", "--qps", "5"], 2, "template dev: match is missing"),
        (["set", "dev", "--match", "x"], 2, "template dev: topic.qps is missing"),
        (
            ["set", "dev", "--match", "x", "--qps", "1000", "--groups", "1"],
            2,
            "template dev: groups must be at least 7",
        ),
        (["get", "dev"], 1, "there is no template 'dev' in environment"),
        (["delete", "dev"], 1, "there is no template 'dev' in environment"),
    ],
)
def test_what_is_wrong_is_one_sentence(template, arguments, code, sentence):
    """Fault 19."""
    status, out, err = template(*arguments)
    assert (code, "", 1) == (status, out, err.count("\n"))
    assert err.startswith(f"evenlane: {sentence}")


def test_what_others_wrote_is_shown_with_what_is_wrong(template, etcd, own_env):
    """Fault 20."""

    async def write():
        client = EtcdCoordination((etcd.endpoint,))
        await client.put(f"/evenlane/{own_env}/templates/bad", b'{"match": 5}')
        await client.put(f"/evenlane/{own_env}/templates/a\x1bb", b"")
        await client.close()

    asyncio.run(write())
    code, out, _ = template("list")
    assert (0, False) == (code, "\x1b" in out)
    assert "topic must be an object" in out
    assert template("get", "bad")[0] == 0
    assert json.loads(template("get", "bad", "--json")[1])["topic"] is None
