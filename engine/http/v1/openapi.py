"""Describes the operations as an OpenAPI 3.1 document."""

from __future__ import annotations

import inspect
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from evenlane.engine._version import __version__
from evenlane.engine.http.errors import TEMPORARY
from evenlane.engine.http.server.scopes import Scope
from evenlane.engine.http.v1.documents import ErrorDocument
from evenlane.engine.http.v1.operations import IF_MATCH, IF_NONE_MATCH, JSON, PREFIX, Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json = dict[str, Any]

_PLACE = "#/components/schemas/{name}"
_ETAGS = {
    IF_MATCH: "The revision that the topic's spec must have, as in the header ETag.",
    IF_NONE_MATCH: "`*`: there must be no spec.",
}


def describe(operations: Iterable[Operation]) -> Json:
    """Return the document. It has every operation, and nothing else."""
    operations = list(operations)
    kinds = list({id(kind): kind for each in operations for kind in _kinds(each)}.values())
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_PLACE)
    schema_of = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: Json = {}
    for each in operations:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _describe(each, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Evenlane",
            "version": __version__,
            "description": "Puts messages and manages topics over HTTP, on any node with an HTTP port.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kinds(operation: Operation) -> Iterator[Any]:
    yield ErrorDocument
    yield from (kind for kind in operation.answers.values() if kind is not None)
    yield from (kind for kind in operation.bodies.values() if kind is not None)


def _describe(operation: Operation, schema_of: dict[int, Json]) -> Json:
    summary, _, text = inspect.getdoc(operation.call).partition("\n\n")  # type: ignore[union-attr]
    document: Json = {
        "operationId": operation.call.__name__ + _things(operation.path),
        "summary": _one_line(summary),
        **({"description": _one_line(text)} if text else {}),
        "security": _security(operation.need.scope),
        "responses": _responses(operation, schema_of),
    }
    if parameters := [*_parameters(operation)]:
        document["parameters"] = parameters
    if operation.bodies:
        content = {kind: _content(kind, struct, schema_of) for kind, struct in operation.bodies.items()}
        document["requestBody"] = {"required": True, "content": content}
    return document


def _security(scope: Scope) -> list[Json]:
    """Reading from the node's own machine needs no token."""
    return [*([{}] if scope is Scope.READ else []), {"token": [scope.value]}]


def _parameters(operation: Operation) -> Iterator[Json]:
    if "{project}" in operation.path:
        yield {"name": "project", "in": "path", "required": True, "schema": {"type": "string"}}
    if operation.query is not None:
        for name, schema in _properties(operation.query).items():
            yield {"name": name, "in": "query", "required": False, "schema": schema}
    for name in operation.headers:
        yield {
            "name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": _ETAGS[name],
        }  # fmt: skip


def _properties(kind: Any) -> Json:
    """Return the schemas of the parameters. A parameter is text or a number, and never null: it may be left out."""
    _, components = msgspec.json.schema_components([kind], ref_template=_PLACE)
    found: Json = {}
    for name, schema in components[kind.__name__]["properties"].items():
        kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        found[name] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return found


def _responses(operation: Operation, schema_of: dict[int, Json]) -> Json:
    responses: Json = {}
    for status, kind in operation.answers.items():
        content = {JSON: {"schema": {"type": "object"} if kind is None else schema_of[id(kind)]}}
        responses[str(int(status))] = {"description": HTTPStatus(status).phrase, "content": content}
        if operation.path.startswith("/topics/"):
            responses[str(int(status))]["headers"] = {"ETag": {"schema": {"type": "string"}}}
    for status in sorted(operation.errors):
        content = {JSON: {"schema": schema_of[id(ErrorDocument)]}}
        responses[str(int(status))] = {"description": HTTPStatus(status).phrase, "content": content}
        if status in TEMPORARY:
            responses[str(int(status))]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return responses


def _content(kind: str, struct: Any, schema_of: dict[int, Json]) -> Json:
    if struct is not None:
        return {"schema": schema_of[id(struct)]}
    is_binary = kind == "application/octet-stream"
    return {"schema": {"type": "string", **({"format": "binary"} if is_binary else {})}}


def _things(path: str) -> str:
    """Return the end of an operation's id: the things that its path is about."""
    if path.endswith("/messages"):
        return "_messages"
    return "_topics" if path == "/topics" else "_topic" if path.startswith("/topics/") else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
