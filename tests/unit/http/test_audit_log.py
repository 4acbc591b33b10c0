"""S3: each change by HTTP is in the audit log with who made it, also if it fails; reads aren't."""

import pytest
from structlog.testing import capture_logs

from evenlane.engine.errors import InvalidTopic
from tests.support.http.serving import TOKEN, FakeNode, served

TOKENED = {"Authorization": f"Bearer {TOKEN}"}


async def audited(path, body=None, node=None, token=TOKEN, method="POST"):
    """Return the lines of the audit log of one request."""
    async with served(node or FakeNode()) as (get, _):
        with capture_logs() as lines:
            await get(path, method, body, Authorization=f"Bearer {token}")
    return [line for line in lines if line["event"] == "audit"]


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        ("/api/topics/acme/pause", "", {}),
        ("/api/topics/acme/resume", "", {}),
        ("/api/dead/acme/replay", '{"seq": 7}', {"seq": 7, "count": 0}),
        ("/api/dead/acme/replay", '{"all": true}', {"error_key": "all", "count": 0}),
        ("/api/dead/acme/drop", '{"error": "abc", "until": 9}', {"error_key": "abc", "until": 9, "count": 0}),
        ("/api/dead/acme/drop", '{"all": true, "until": 9}', {"error_key": "all", "until": 9, "count": 0}),
    ],
)
async def test_change_is_noted_with_who(path, body, fields):
    who = {"by": "http_token_file", "address": "127.0.0.1", "project": "acme", "action": f"POST {path}"}
    assert [{"event": "audit", "log_level": "info"} | who | fields] == await audited(path, body)


async def test_background_job_is_noted_as_running():
    node = FakeNode()
    node.running = True
    [line] = await audited("/api/dead/acme/drop", '{"all": true}', node)
    assert (True, False) == (line["running"], "count" in line)


async def test_failed_change_is_noted_with_the_reason():
    node = FakeNode()
    node.fails = InvalidTopic("topic acme was deleted")
    [line] = await audited("/api/topics/acme/pause", node=node)
    assert ("http_token_file", "topic acme was deleted") == (line["by"], line["error"])


async def test_reads_and_wrong_tokens_are_not_noted():
    """Nobody can fill the log without a token."""
    assert [] == await audited("/api/overview", method="GET")
    assert [] == await audited("/api/topics/acme/pause", token="another")


async def test_author_reaches_the_node():
    async with served() as (get, node):
        await get("/api/topics/acme/pause", "POST", "", **TOKENED)
        await get("/api/dead/acme/drop", "POST", '{"all": true}', **TOKENED)
    assert ["http_token_file"] * 2 == node.authors


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("{}", "the body must name one of the three"),
        ('{"seq": 1, "all": true}', "the body must name one of the three"),
        ('{"seq": 1, "until": 2}', "until is for several dead letters"),
        ('{"error": "KeyError"}', "error must be the key of an error, as /api/dead/PROJECT/errors lists it"),
        ('{"error": "abc", "until": 0}', "a dead letter's sequence must be a whole number from 1 on, not '0'"),
    ],
)
async def test_unclear_choice_changes_nothing(body, sentence):
    async with served() as (get, node):
        status, _, text = await get("/api/dead/acme/drop", "POST", body, **TOKENED)
    assert (400, []) == (status, node.changed)
    assert sentence in text
