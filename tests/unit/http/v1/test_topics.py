"""Topics by HTTP: created, changed, read and deleted like with `evenlane topics`."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.http.topics import TopicService
from tests.support.http.api_world import ApiWorld

ACME = "/api/v1/topics/acme"


async def create(world, **fields):
    answer = await world.call("PUT", ACME, {"qps": 100} | fields)
    assert 200 == answer.status, answer.document
    return answer


async def test_topic_is_created_and_read(world):
    created = await create(world, concurrency=5)
    assert (True, None, {"qps": 100.0, "concurrency": 5}) == tuple(
        created.document[name] for name in ("accepted", "problem", "wish")
    )
    read = await world.call("GET", ACME)
    assert (200, created.document) == (read.status, read.document)
    assert f'"{read.document["revision"]}"' == created.headers["ETag"] == read.headers["ETag"]
    assert (100.0, 5, "active") == tuple(read.document["in_force"][name] for name in ("qps", "concurrency", "state"))


async def test_head_answers_without_a_document(world):
    created = await create(world)
    async with world.client.head(ACME) as response:
        assert (200, created.headers["ETag"], b"") == (response.status, response.headers["ETag"], await response.read())


async def test_put_replaces_the_whole_spec_and_patch_only_named_fields(world):
    await create(world, concurrency=5, backoff={"base": 3, "cap": 9}, weight=2)
    changed = await world.call("PATCH", ACME, {"weight": None, "ttl": 60, "backoff": {"cap": 30}})
    assert (100.0, 5, 100.0, 60.0, 3.0, 30.0) == effective(changed)
    replaced = await create(world, backoff={"cap": 30}, ttl=None)
    assert (100.0, None, 100.0, 259_200.0, 1.0, 30.0) == effective(replaced)


def effective(answer):
    topic = answer.document["in_force"]
    return (
        topic["qps"], topic["concurrency"], topic["weight"], topic["ttl"], topic["backoff"]["base"],
        topic["backoff"]["cap"],
    )  # fmt: skip


async def test_put_repairs_a_spec_that_cannot_be_read(world):
    await world.etcd.put(names.key("online", "topics", "acme"), b"{broken")
    assert "is not JSON" in (await world.call("GET", ACME)).document["problem"]
    assert (await create(world)).document["accepted"]


async def test_pause_resume_drain_and_delete(world):
    await create(world)
    for verb, state in (("pause", "paused"), ("resume", "active"), ("drain", "draining"), ("resume", "active")):
        answer = await world.call("POST", f"{ACME}/{verb}")
        assert (200, state) == (answer.status, answer.document["in_force"]["state"])
    deleted = await world.call("DELETE", ACME)
    assert (200, None, True) == (deleted.status, deleted.document["wish"], deleted.document["in_force"]["deleted"])
    again = await world.call("DELETE", ACME)
    assert (409, "TopicDraining") == (again.status, again.document["type"])
    assert "topic acme was already deleted: puts are refused" in again.document["error"]
    changed = await world.call("PATCH", ACME, {"qps": 5})
    assert (409, "TopicDraining") == (changed.status, changed.document["type"])
    restored = await world.call("POST", f"{ACME}/resume")
    assert (200, "active", 100.0) == (
        restored.status, restored.document["in_force"]["state"], restored.document["in_force"]["qps"],
    )  # fmt: skip


async def test_change_applies_only_to_the_expected_revision(world):
    first = await create(world)
    second = await world.call("PATCH", ACME, {"qps": 200}, if_match=first.headers["ETag"])
    assert 200 == second.status
    for method, path, body in (
        ("PUT", ACME, {"qps": 1}),
        ("PATCH", ACME, {"qps": 1}),
        ("DELETE", ACME, None),
        ("POST", f"{ACME}/pause", None),
    ):
        answer = await world.call(method, path, body, if_match=first.headers["ETag"])
        assert (412, "RevisionConflict") == (answer.status, answer.document["type"])
        assert f"no longer at revision {first.document['revision']}" in answer.document["error"]
        assert "by http@n" in answer.document["error"]
    assert second.document == (await world.call("GET", ACME)).document
    assert 412 == (await world.call("PUT", ACME, {"qps": 1}, if_none_match="*")).status
    assert 200 == (await world.call("PUT", "/api/v1/topics/new", {"qps": 1}, if_none_match="*")).status


async def test_history_names_the_node_and_the_token(world):
    await create(world)
    await world.call("POST", f"{ACME}/pause")
    await world.call("DELETE", ACME)
    service: TopicService = world.node.topics
    assert isinstance(service, TopicService)
    found = (await world.etcd.list(names.key("online", "history", "acme", ""))).items
    written = b"".join(item.value for item in found)
    assert [3, 1, 1, 1] == [
        written.count(text)
        for text in (
            b'"by":"http@n (http_token_file)"',
            b'"via":"topics set"',
            b'"via":"topics pause"',
            b'"via":"topics delete"',
        )
    ]


async def test_topics_are_listed_by_pages(world):
    for number in range(5):
        assert 200 == (await world.call("PUT", f"/api/v1/topics/p{number}", {"qps": 1})).status
    pages, after = [], ""
    while after is not None:
        answer = await world.call("GET", f"/api/v1/topics?limit=2&after={after}")
        assert 200 == answer.status
        pages.append([each["project"] for each in answer.document["topics"]])
        after = answer.document["next"]
    assert [["p0", "p1"], ["p2", "p3"], ["p4"]] == pages
    [first, *_] = (await world.call("GET", "/api/v1/topics")).document["topics"]
    assert (await world.call("GET", "/api/v1/topics/p0")).document == first


async def test_change_that_the_leader_has_not_accepted_is_202(world):
    await create(world)
    await world.lead()
    answer = await world.call("PATCH", ACME, {"qps": 200})
    assert (202, False, {"qps": 200.0}) == (answer.status, answer.document["accepted"], answer.document["wish"])


async def test_ordered_topic_with_a_backlog_keeps_its_groups(world):
    """With other groups, the next messages of a key would overtake those that wait."""
    await create(world, ordered=True, groups=2)
    await world.call("POST", f"{ACME}/drain")
    world.waiting = 7
    for method in ("PUT", "PATCH"):
        fields = {"qps": 100, "ordered": True, "groups": 4, "state": "active"}
        answer = await world.call(method, ACME, fields)
        assert (409, "InvalidTopic") == (answer.status, answer.document["type"])
        assert "topic acme is ordered and 7 of its messages still wait" in answer.document["error"]
    world.waiting = 0
    assert 200 == (await world.call("PUT", ACME, fields)).status


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind", "sentence"),
    [
        ("GET", "/api/v1/topics/nobody", None, 404, "UnknownProject", "project 'nobody' has no topic"),
        ("GET", "/api/v1/topics/no.body", None, 400, "InvalidName", "project 'no.body' is not valid"),
        ("GET", "/api/v1/topics?limit=0", None, 400, "ConfigError", "expected `int` >= 1 in `limit`"),
        ("GET", "/api/v1/topics?limit=501", None, 400, "ConfigError", "expected `int` <= 500 in `limit`"),
        ("GET", "/api/v1/topics?page=2", None, 400, "ConfigError", "there is no parameter 'page'"),
        ("PATCH", "/api/v1/topics/nobody", {"qps": 5}, 404, "UnknownProject", "project 'nobody' has no topic"),
        ("DELETE", "/api/v1/topics/nobody", None, 404, "UnknownProject", "project 'nobody' has no topic"),
        ("POST", "/api/v1/topics/nobody/pause", None, 404, "UnknownProject", "project 'nobody' has no topic"),
        ("PUT", ACME, {}, 400, "InvalidTopic", "topic acme: qps is missing"),
        ("PUT", ACME, {"qps": -1}, 400, "InvalidTopic", "topic acme: qps must be a number from 0.01 to 1,000,000"),
        ("PUT", ACME, {"qps": 1, "rate": 2}, 400, "InvalidTopic", "topic acme: rate is not a field of a topic"),
        ("PATCH", ACME, {"rate": 2}, 400, "InvalidTopic", "topic acme: rate is not a field of a topic"),
        ("PATCH", ACME, {"groups": 0}, 400, "InvalidTopic", "topic acme: groups must be a whole number from 1"),
        ("PUT", ACME, b"{broken", 400, "ConfigError", "the body of this request can't be read: it is not JSON"),
        ("PUT", ACME, b"[]", 400, "ConfigError", "it must be a JSON object such as"),
        ("PUT", ACME, b'{"qps":1,"qps":2}', 400, "ConfigError", "qps is given twice"),
        ("PUT", ACME, b"x" * 70_000, 413, "PayloadTooLarge", "a topic can have at most 65,536"),
        ("POST", "/api/v1/topics/acme/stop", None, 404, "NotFound", "there is nothing at /api/v1/topics/acme/stop"),
        ("POST", ACME, None, 405, "MethodNotAllowed", "/api/v1/topics/acme does not support POST: use "),
    ],
)
async def test_wrong_request_is_one_sentence(world, method, path, body, status, kind, sentence):
    if method == "PATCH" and path == ACME:
        await create(world)
    answer = await world.call(method, path, body, content_type="application/json")
    assert (status, kind) == (answer.status, answer.document["type"]), answer.document
    assert sentence in answer.document["error"]
    assert "\n" not in answer.document["error"]


@pytest.mark.parametrize(
    ("headers", "status", "sentence"),
    [
        ({"if_match": "17"}, 400, "If-Match must be an ETag of this topic, such as \"17\", not '17'"),
        ({"if_match": 'W/"17"'}, 400, "If-Match must be an ETag"),
        ({"if_none_match": '"17"'}, 400, "If-None-Match must be *"),
        ({"if_none_match": "*", "if_match": '"1"'}, 400, "can't be combined"),
        ({"content_type": "text/plain"}, 415, "the body must be application/json"),
        ({"authorization": ""}, 401, "changing something needs the token"),
    ],
)
async def test_wrong_header_is_one_sentence(world, headers, status, sentence):
    answer = await world.call("PUT", ACME, b'{"qps": 1}', **{"content_type": "application/json"} | headers)
    assert status == answer.status
    assert sentence in answer.document["error"]
    assert 404 == (await world.call("GET", ACME)).status


async def test_reading_needs_the_token_only_from_elsewhere(world):
    await create(world)
    assert 200 == (await world.call("GET", ACME, authorization="")).status
    assert 401 == (await world.call("GET", ACME, authorization="", x_real_ip="192.0.2.1")).status
    assert 200 == (await world.call("GET", ACME, x_real_ip="192.0.2.1")).status


async def test_etcd_that_does_not_answer_is_503():
    async with ApiWorld().serve() as world:
        world.etcd.cut()
        for method, path, body in (("GET", ACME, None), ("GET", "/api/v1/topics", None), ("PUT", ACME, {"qps": 1})):
            answer = await world.call(method, path, body)
            assert (503, "Unreachable") == (answer.status, answer.document["type"])
