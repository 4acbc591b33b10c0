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


@pytest.mark.usefixtures("on_etcd")
def test_template_is_made_shown_listed_and_deleted(transcript):
    for command in ("set dev --match dev-* --qps 10 --limit 2000", "get dev", "list", "delete dev", "list"):
        transcript("topics", "template", *command.split())
    transcript.check()


def test_set_changes_only_the_given_fields(template):
    template("set", "dev", "--match", "dev-*", "--qps", "10", "--ttl", "1d")
    code, out, err = template("set", "dev", "--limit", "5", "--ttl", "default", "--backoff-base", "2", "--json")
    reported = json.loads(out)
    assert (0, "") == (code, err)
    assert ("dev", "dev-*", 5, 0, None) == tuple(
        reported[each] for each in ("name", "match", "limit", "made", "problem")
    )
    assert (10, 2) == (reported["topic"]["qps"], reported["topic"]["backoff"]["base"])
    assert "ttl" not in reported["topic"]
    assert reported == json.loads(template("get", "dev", "--json")[1])
    assert {"templates": [reported]} == json.loads(template("list", "--json")[1])
    assert {"name": "dev", "deleted": True} == json.loads(template("delete", "dev", "--json")[1])


def test_template_has_all_fields_of_topics_set():
    options = set(inspect.signature(set_).parameters)
    assert set(FIELDS) - {"backoff", "subscriptions"} <= options  # it sets these with other flags
    assert {"backoff_base", "backoff_factor", "backoff_cap", "backoff_jitter"} <= options
    assert options.isdisjoint({"project", "if_revision", "by"})


WRONG = r"""
topics template set 'a b' --qps 3
topics template set dev --match a.b
topics template set dev --qps x
topics template set dev --qps -3
topics template set dev --limit 0
topics template set dev
topics template set dev --state draining
topics template set dev --qps 5
topics template set dev --match x
topics template set dev --match x --qps 1000 --groups 1
topics template get dev
topics template delete dev
"""


@pytest.mark.usefixtures("on_etcd")
def test_error_is_one_sentence(transcript):
    """Fault 19"""
    transcript.fail(WRONG)
    transcript.check()


def test_invalid_template_is_shown_with_its_error(template, etcd, own_env):
    """Fault 20"""

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
