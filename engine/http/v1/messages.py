"""Operations on messages: puts one, or many as JSON lines."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from evenlane.engine.base.names import check_project
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.engine.http.errors import answer_error
from evenlane.engine.http.request_body import RequestBody, content_type
from evenlane.engine.http.routes.params import parse_params
from evenlane.engine.http.server.scopes import Need, Scope
from evenlane.engine.http.v1.documents import NewMessage, PutResult, StoredMessage
from evenlane.engine.http.v1.operations import JSON, Operation, query_of
from evenlane.engine.producer.json_lines import JsonOptions, body_of, decode, to_put
from evenlane.engine.producer.put_lines import PutTally, put_lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from evenlane.engine.http.puts import PutService
    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.put import Put

LINES = ("application/x-ndjson", "application/jsonl")
BYTES = "application/octet-stream"
MOST_OF_LINES = 256 << 20  # bytes of one request
_PIECE = 8_192  # bytes
_OPTIONS = 65_536  # bytes of one message in JSON, besides its body
_ERRORS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


class MessageOperations:
    """Each put goes through the one producer of the service, under its limits."""

    def __init__(self, puts: PutService, idle_s: float) -> None:
        self._puts, self._idle_s = puts, idle_s

    def all(self) -> list[Operation]:
        bodies = {JSON: NewMessage, **dict.fromkeys((*LINES, BYTES))}
        return [
            Operation(
                "POST", "/projects/{project}/messages", self.put,
                answers={HTTPStatus.CREATED: StoredMessage, HTTPStatus.OK: PutResult}, errors=_ERRORS,
                need=Need(Scope.PUT),
                bodies=bodies, query=JsonOptions,
            )
        ]  # fmt: skip

    async def put(self, request: Request) -> Response:
        """Put a message, or many as JSON lines.

        It answers when they are stored. A message in JSON, or as bytes with its options as parameters, is answered with
        201. JSON lines are answered with 200 when each line has its outcome; those without a project are for the one in
        the path.
        """
        kind = content_type(request)
        if kind not in {JSON, BYTES, *LINES} or request.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the body must be {JSON}, {', '.join(LINES)} or {BYTES}, as the header Content-Type says, and not"
                " compressed",
            )
        options = query_of(request, JsonOptions) if kind == BYTES else None
        if options is None:
            _refuse_parameters(request, kind)
        incoming = _Incoming(request, check_project(request.path_params["project"]))
        with self._puts.admit():
            producer = await self._puts.producer()
            if kind in LINES:
                return await self._put_lines(incoming, producer)
            return await self._put_one(incoming, producer, options)

    async def _put_one(self, incoming: _Incoming, producer: Producer, options: JsonOptions | None) -> Response:
        """Put a message as bytes with these options, or in JSON without them."""
        most = producer.max_payload if options is not None else _longest_json(producer)
        body = self._body(incoming.request, most, "one message" if options is not None else "one message in JSON")
        with self._puts.hold(body.announced or most):
            raw = await body.read()
            put = _explained(incoming.project, raw) if options is None else to_put(incoming.project, raw, options)
            del raw  # JSON: the put has another copy of the body
            [outcome] = await producer.put_many([put])
        if isinstance(outcome, Exception):
            raise outcome
        stored = {"stream": outcome.stream, "sequence": outcome.sequence, "duplicate": outcome.duplicate}
        return JSONResponse(stored | ({} if put.id is None else {"id": put.id}), HTTPStatus.CREATED)

    async def _put_lines(self, incoming: _Incoming, producer: Producer) -> Response:
        longest = _longest_json(producer)
        body = self._body(incoming.request, MOST_OF_LINES, "JSON lines in one request")
        tally, problems = PutTally(), list[EvenlaneError]()
        with self._puts.hold(longest):  # of one line; those in flight are bounded by the producer's window
            await put_lines(
                producer,
                _until_problem(body, problems),
                tally,
                parse=partial(_parse, incoming.project),
                longest=longest,
            )
        if not problems:
            return JSONResponse(tally.document())
        return answer_error(incoming.request, problems[0], tally.document())

    def _body(self, request: Request, most: int, what: str) -> RequestBody:
        return RequestBody(request, most, what, self._puts.waits, self._idle_s)


class _Incoming(NamedTuple):
    """A request, and the project in its path."""

    request: Request
    project: str


async def _until_problem(body: RequestBody, problems: list[EvenlaneError]) -> AsyncIterator[bytes]:
    """Yield the chunks in pieces, between which the node's loop has other turns: a chunk may have thousands of lines.

    An error ends them and is kept, so that the puts in flight still get their outcome.
    """
    try:
        async for chunk in body.chunks():
            for start in range(0, len(chunk), _PIECE):
                yield chunk[start : start + _PIECE]
                await asyncio.sleep(0)
    except EvenlaneError as error:
        problems.append(error)


def _explained(project: str, raw: bytes) -> Put:
    try:
        return _parse(project, raw)
    except ConfigError as error:
        raise ConfigError(f"the body isn't a valid message: {error}") from None


_new_messages = msgspec.json.Decoder(NewMessage)


def _parse(project: str, raw: bytes) -> Put:
    """Parse one message for this project. Raises ConfigError."""
    message = decode(raw, _new_messages)
    if message.project not in {None, project}:
        raise ConfigError(f"its project is {str(message.project)[:80]!r}, and the path names {project!r}")
    return to_put(project, body_of(message), message, message.headers)


def _refuse_parameters(request: Request, kind: str) -> None:
    """Raise ConfigError for query parameters: in JSON, a message has its options in the body."""
    if request.query_params:
        name = next(iter(request.query_params))
        raise ConfigError(f"parameters such as {name!r} go with {BYTES}: a body of {kind} has them as fields")
    parse_params(request, ())


def _longest_json(producer: Producer) -> int:
    """Return the bytes that a message may have in JSON: base64 needs a third more than the body, quotes and line ends
    in text need twice as much.
    """
    return 2 * producer.max_payload + _OPTIONS
