"""Whatever a client sends, the answer is a document with one sentence, and never a defect of the node."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenlane.quota.topics.fields import FIELDS
from tests.support.http.api_world import MESSAGES

ACME = "/api/v1/topics/acme"
TEXT = st.text() | st.sampled_from(["\ud800", "a\nb", "\x00", "x" * 5_000])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
FIELDS_OF_TOPICS = st.dictionaries(st.sampled_from([*FIELDS]) | TEXT, VALUES, max_size=4)
FIELDS_OF_MESSAGES = st.dictionaries(
    st.sampled_from(["body", "body_base64", "priority", "key", "group", "delay", "due", "ttl", "id", "headers"]) | TEXT,
    VALUES,
    max_size=4,
)
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


def check(answer):
    assert answer.status < 500, answer.document
    if answer.status >= 400:
        assert answer.document["type"] in {"ConfigError", "InvalidName", "InvalidPut", "InvalidTopic", "UnknownProject"}
        assert answer.document["error"]
        assert "\n" not in answer.document["error"]


@shared
@given(FIELDS_OF_MESSAGES | VALUES)
async def test_any_json_is_a_message_or_one_sentence(world, value):
    check(await world.call("POST", MESSAGES, json.dumps(value).encode(), content_type="application/json"))


@shared
@given(FIELDS_OF_MESSAGES)
async def test_body_with_any_other_field_is_a_message_or_one_sentence(world, value):
    check(await world.call("POST", MESSAGES, value | {"body": "x"}))


@shared
@given(st.lists(FIELDS_OF_MESSAGES | VALUES, max_size=5))
async def test_each_line_has_its_outcome(world, values):
    answer = await world.put_lines("\n".join(json.dumps(value) for value in values))
    check(answer)
    document = answer.document
    assert len(values) == document["put"] + document["duplicates"] + len(document["refused"])


@shared
@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/x-ndjson"]))
async def test_any_bytes_are_answered(world, body, kind):
    check(await world.call("POST", MESSAGES, body, content_type=kind))
    if kind == "application/json":
        check(await world.call("PUT", ACME, body, content_type=kind))


@shared
@given(FIELDS_OF_TOPICS | VALUES, st.sampled_from(["PUT", "PATCH"]))
async def test_any_json_is_a_topic_or_one_sentence(world, value, method):
    if isinstance(value, dict):
        value = {"qps": 1} | value
    check(await world.call(method, ACME, json.dumps(value).encode(), content_type="application/json"))
    check(await world.call("GET", ACME))


@pytest.mark.parametrize("name", ["%ff", "%00", "%0d%0aX:y", "%ed%a0%80", "x" * 2_000, "*", "..", "a.b", "%2e%2e"])
async def test_any_name_is_answered_in_one_sentence(world, name):
    for method, path in (
        ("GET", f"/api/v1/topics/{name}"), ("DELETE", f"/api/v1/topics/{name}"),
        ("POST", f"/api/v1/projects/{name}/messages"),
    ):  # fmt: skip
        answer = await world.call(method, path, {"body": "x"} if method == "POST" else None)
        assert 400 <= answer.status < 500
        assert "\n" not in answer.document["error"]
    answer = await world.call("GET", f"/api/v1/topics?after={name}")
    assert (200, None) == (answer.status, answer.document["next"])
