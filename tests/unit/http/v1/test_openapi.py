"""The OpenAPI document and the server, checked against each other."""

import asyncio

import pytest
from starlette.routing import Route

from evenlane.engine.base import names
from evenlane.engine.core.ports import Full, Refused
from tests.support.http.api_world import MESSAGES, ApiWorld

ACME, LIST, DOCUMENT = "/api/v1/topics/acme", "/api/v1/topics", "/api/v1/openapi.json"
LINES, BYTES = "application/x-ndjson", "application/octet-stream"
FROM_ELSEWHERE = {"x_real_ip": "192.0.2.1"}


async def read(world):
    answer = await world.call("GET", DOCUMENT)
    assert 200 == answer.status
    return answer.document


async def test_document_is_valid_and_made_for_openapi_3_1(world):
    from openapi_spec_validator import OpenAPIV31SpecValidator, validate  # takes seconds

    document = await read(world)
    validate(document, cls=OpenAPIV31SpecValidator)
    assert "3.1.0" == document["openapi"]


async def test_document_has_each_route_and_no_other(world):
    documented = {
        (method.upper(), path) for path, methods in (await read(world))["paths"].items() for method in methods
    }
    served = {
        (method, route.path)
        for route in world.app.routes
        if isinstance(route, Route) and route.path.startswith("/api/v1/")
        for method in route.methods - {"HEAD"}
    }
    assert served == documented
    assert len(served) > 8


async def test_operations_have_distinct_names_and_descriptions(world):
    operations = [each for methods in (await read(world))["paths"].values() for each in methods.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert {"put_messages", "list_topics", "replace_topic", "pause_topic", "openapi"} <= {*names}
    assert all(each["summary"].endswith(".") for each in operations)


async def test_fields_of_topics_and_messages_are_those_of_the_code(world):
    schemas = (await read(world))["components"]["schemas"]
    assert {"qps", "max_backlog", "backoff", "push"} <= schemas["TopicSpec"]["properties"].keys()
    assert ["qps"] == schemas["TopicSpec"]["required"]
    assert [] == schemas["TopicChanges"]["required"]
    assert ["active", "draining", "paused"] == sorted(schemas["TopicInEffect"]["properties"]["state"]["enum"])
    assert {"body", "body_base64", "key", "due"} <= schemas["NewMessage"]["properties"].keys()


# ---- each documented status is answered, and each answer fits its schema


class Conformance:
    """Answers of the server, compared with the document."""

    def __init__(self, world, document):
        self.world, self.document = world, document
        self.seen = set()

    async def expect(self, status, method, path, body=None, **headers):
        answer = await self.world.call(method, path, body, **headers)
        assert status == answer.status, answer.document
        self._check(method, path.partition("?")[0], answer)

    def _check(self, method, path, answer):
        from jsonschema import Draft202012Validator  # takes seconds

        template = path.replace("/acme", "/{project}").replace("/nobody", "/{project}").replace("/new", "/{project}")
        operation = self.document["paths"][template][method.lower()]
        response = operation["responses"][str(answer.status)]
        schema = response["content"]["application/json"]["schema"] | {"components": self.document["components"]}
        Draft202012Validator(schema).validate(answer.document)
        assert answer.headers["Content-Type"] == "application/json"
        assert response.get("headers", {}).keys() <= answer.headers.keys()
        self.seen.add((method, template, answer.status))

    @property
    def documented(self):
        return {
            (method.upper(), path, int(status))
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            for status in operation["responses"]
        }


@pytest.fixture
async def conformance(world):
    return Conformance(world, await read(world))


async def test_each_documented_answer_is_given_and_fits_its_schema(world, conformance):
    await messages_are_answered(world, conformance.expect)
    await topics_are_answered(conformance.expect)
    await conflicts_are_answered(world, conformance.expect)
    await access_is_answered(conformance)
    await slow_bodies_are_answered(conformance)
    await outages_are_answered(world, conformance.expect)
    assert conformance.documented == conformance.seen


async def messages_are_answered(world, expect):
    await expect(201, "POST", MESSAGES, {"body": "x", "id": "1", "delay": 5, "headers": {"a": "b"}})
    await expect(201, "POST", MESSAGES + "?priority=high", b"x", content_type=BYTES)
    await expect(200, "POST", MESSAGES, b'{"body": "x"}\n{broken\n', content_type=LINES)
    await expect(400, "POST", MESSAGES, {"body": 1})
    await expect(404, "POST", "/api/v1/projects/nobody/messages", {"body": "x"})
    await expect(413, "POST", MESSAGES, b"x" * 1_100_000, content_type=BYTES)
    await expect(415, "POST", MESSAGES, b"x", content_type="text/plain")
    world.server.refuse("lanes.", Refused("no"))
    await expect(422, "POST", MESSAGES, {"body": "x"})
    world.server.refuse("lanes.", Full("maximum messages exceeded"))
    await expect(429, "POST", MESSAGES, {"body": "x"})
    world.server.accept("lanes.")
    world.topics.set("acme", '{"qps": 400, "state": "draining"}')
    await expect(409, "POST", MESSAGES, {"body": "x"})
    world.topics.set("acme", '{"qps": 400}')


async def topics_are_answered(expect):
    await expect(200, "PUT", ACME, {"qps": 100, "push": {"url": "https://example.com/"}, "ordered": True})
    await expect(200, "PATCH", ACME, {"backoff": {"cap": 900}, "push": None})
    await expect(200, "GET", ACME)
    await expect(200, "GET", LIST + "?limit=1&after=a")
    await expect(200, "GET", DOCUMENT)
    await expect(400, "GET", DOCUMENT + "?x=1")
    await expect(400, "GET", LIST + "?limit=0")
    await expect(400, "GET", ACME + "?x=1")
    await expect(404, "GET", "/api/v1/topics/nobody")
    for method, path, body in changes("acme"):
        await expect(400, method, path, body, if_match="1")
        await expect(412, method, path, body, if_match='"99999"')
    for method, path, body in changes("nobody"):
        if method != "PUT":
            await expect(404, method, path, body)
    for method in ("PUT", "PATCH"):
        await expect(413, method, ACME, {"qps": "x" * 70_000})
        await expect(415, method, ACME, b"{}", content_type="text/plain")
    for verb in ("pause", "resume", "drain"):
        await expect(200, "POST", f"{ACME}/{verb}")
    await expect(200, "DELETE", ACME)


def changes(project):
    path = f"/api/v1/topics/{project}"
    yield "PUT", path, {"qps": 1}
    yield "PATCH", path, {"qps": 1}
    yield "DELETE", path, None
    for verb in ("pause", "resume", "drain"):
        yield "POST", f"{path}/{verb}", None


async def conflicts_are_answered(world, expect):
    """The topic was deleted; then it is ordered, and would resume with other groups. Another one can't be read."""
    await expect(409, "DELETE", ACME)
    await expect(409, "PATCH", ACME, {"qps": 1})
    await expect(409, "POST", f"{ACME}/pause")
    await expect(200, "PUT", ACME, {"qps": 100, "ordered": True, "state": "draining"})
    world.waiting = 7
    await expect(409, "PUT", ACME, {"qps": 100, "ordered": True, "groups": 4})
    await expect(200, "PATCH", ACME, {"qps": 140})  # three groups, once it resumes
    await expect(409, "POST", f"{ACME}/resume")
    await world.etcd.put(names.key("online", "topics", "new"), b"{broken")
    await expect(409, "POST", "/api/v1/topics/new/drain")
    world.waiting = 0


async def access_is_answered(conformance):
    reads = [("GET", path, None) for path in (ACME, LIST, DOCUMENT)]
    writes = [("POST", MESSAGES, {"body": "x"}), *changes("acme")]
    for method, path, body in [*reads, *writes]:
        await conformance.expect(401, method, path, body, authorization="Bearer wrong", **FROM_ELSEWHERE)
    async with ApiWorld().serve(token=None) as without:
        other = Conformance(without, conformance.document)
        for method, path, body in [*reads, *writes]:
            await other.expect(403, method, path, body, **FROM_ELSEWHERE)
    conformance.seen |= other.seen


async def slow_bodies_are_answered(conformance):
    async def slow():
        yield b"{"
        await answered.wait()

    answered = asyncio.Event()
    async with ApiWorld().serve(idle_s=0.1) as impatient:
        other = Conformance(impatient, conformance.document)
        for method, path in (("POST", MESSAGES), ("PUT", ACME), ("PATCH", ACME)):
            await other.expect(408, method, path, slow(), content_type="application/json")
        answered.set()
    conformance.seen |= other.seen


async def outages_are_answered(world, expect):
    await world.lead()
    for method, path, body in sorted(changes("acme"), key=lambda change: change[0] == "DELETE"):
        await expect(202, method, path, body)
    world.etcd.cut()
    for method, path, body in [("GET", ACME, None), ("GET", LIST, None), *changes("acme")]:
        await expect(503, method, path, body)
    await world.node.puts.close()
    await expect(503, "POST", MESSAGES, {"body": "x"})
