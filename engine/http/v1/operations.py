"""An operation of the API: what serves it, and what its documentation needs to know."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from evenlane.engine.errors import ConfigError
from evenlane.engine.http.routes.params import parse_params
from evenlane.engine.producer.json_lines import explain

if TYPE_CHECKING:
    from http import HTTPStatus

    from msgspec import Struct

    from evenlane.engine.http.server.scopes import Need

T = TypeVar("T")

PREFIX = "/api/v1"
JSON = "application/json"
IF_MATCH, IF_NONE_MATCH = "If-Match", "If-None-Match"
_ETAG = re.compile(r'"([0-9]{1,18})"', re.ASCII)

Handler = Callable[[Request], Awaitable[Response]]


class Operation(NamedTuple):
    """One method of one path. `call` serves it, and its docstring is the description.

    `answers` are the schemas of successful answers by status, `errors` the statuses of refusals. `bodies` are the
    schemas of the request by content type (None: it isn't JSON), `query` has the parameters, `headers` are the optional
    headers that it understands. `need` is the scope of its token.
    """

    method: str
    path: str
    call: Handler
    answers: Mapping[HTTPStatus, Any]
    errors: tuple[HTTPStatus, ...]
    need: Need
    bodies: Mapping[str, Any] = {}
    query: type[Struct] | None = None
    headers: tuple[str, ...] = ()


def query_of(request: Request, kind: type[T]) -> T:
    """Parse the query parameters. Raises ConfigError."""
    names = [field.encode_name for field in msgspec.structs.fields(kind)]  # type: ignore[arg-type]
    try:
        return msgspec.convert(parse_params(request, names), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a parameter is wrong: {explain(error)}") from None


def if_revision(request: Request) -> int | None:
    """Return the revision that the spec must have: 0 if there must be none, None for any. Raises ConfigError."""
    match, none_match = request.headers.get(IF_MATCH), request.headers.get(IF_NONE_MATCH)
    if match is not None and none_match is not None:
        raise ConfigError(f"{IF_MATCH} and {IF_NONE_MATCH} can't be combined")
    if none_match is not None:
        if none_match.strip() != "*":
            raise ConfigError(f"{IF_NONE_MATCH} must be *, which means that there is no topic, not {none_match[:40]!r}")
        return 0
    if match is None:
        return None
    found = _ETAG.fullmatch(match.strip())
    if found is None:
        raise ConfigError(f'{IF_MATCH} must be an ETag of this topic, such as "17", not {match[:40]!r}')
    return int(found[1])
