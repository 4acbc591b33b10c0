"""The answers of the API server, as recorded, are those of its stand-in (P10).

`make test-kubernetes ARGS=--update` records them again.
"""

import json
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("answers.json")
CHANGING = {"uid", "creationTimestamp", "resourceVersion", "selfLink", "managedFields"}


def changed(replicas, version):
    return {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}


async def ask_each(cluster):
    """The answer to each kind of request, by its name."""
    await cluster.create(3)
    version = (await cluster.scale().read()).version
    yield "read", await cluster.ask("get")
    yield "changed", await cluster.ask("patch", body=changed(5, version))
    yield "conflict", await cluster.ask("patch", body=changed(9, version))
    yield "unknown form", await cluster.ask("patch", body=changed(9, version), form="application/json")
    yield "forbidden", await cluster.ask("get", "others")
    yield "unauthorized", await cluster.ask("get", token="another-token")
    await cluster.allow("get", "patch", names=("nodes", "nodse"))
    yield "not found", await cluster.ask("get", "nodse")


def without_changing(value):
    """The answer without what differs from one server, or one moment, to the next."""
    if not isinstance(value, dict):
        return value
    return {key: without_changing(each) for key, each in value.items() if key not in CHANGING}


async def test_answers_are_those_recorded(cluster, request, update):
    """P10: the tests that run on the stand-in show what they would on the real server."""
    answers = {name: [status, without_changing(answer)] async for name, (status, answer) in ask_each(cluster)}
    if update and "api-server" in request.node.name:
        RECORDED.write_text(json.dumps(answers, indent=2) + "\n")
    assert json.loads(RECORDED.read_text()) == answers


@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_each_refusal_is_recorded(status):
    """P10."""
    refusals = [answer for code, answer in json.loads(RECORDED.read_text()).values() if code == status]
    assert [("Failure", status)] == [(each["status"], each["code"]) for each in refusals]
