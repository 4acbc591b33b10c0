"""Error responses: JSON with one sentence, and a status that distinguishes the client's errors from the node's."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from evenlane.engine.admin.dead_letters.client import NoSuchDeadLetter
from evenlane.engine.errors import ConfigError, EvenlaneError, InvalidName, InvalidTopic, TopicDraining, UnknownProject
from evenlane.engine.http.dead_letters import ReplayInProgress

if TYPE_CHECKING:
    from starlette.requests import Request

_log = structlog.get_logger(__name__)


def status_of(error: EvenlaneError) -> HTTPStatus:
    match error:
        case InvalidName() | ConfigError():
            return HTTPStatus.BAD_REQUEST
        case UnknownProject() | NoSuchDeadLetter():
            return HTTPStatus.NOT_FOUND
        case TopicDraining() | InvalidTopic() | ReplayInProgress():
            return HTTPStatus.CONFLICT
    return HTTPStatus.SERVICE_UNAVAILABLE


def error_response(sentence: str, status: int) -> JSONResponse:
    return JSONResponse({"error": " ".join(sentence.split())}, status)


async def on_known(_request: Request, error: Exception) -> JSONResponse:
    """Answer an error that was caused by a person or the environment."""
    assert isinstance(error, EvenlaneError)
    return error_response(str(error), status_of(error))


async def on_http(request: Request, error: Exception) -> JSONResponse:
    """Answer a request with an unknown path, a wrong method, or without access."""
    assert isinstance(error, HTTPException)
    takes = (error.headers or {}).get("Allow", "GET").replace(", HEAD", "").replace("HEAD, ", "")
    sentences = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {request.url.path}: see docs/reference/http-api.md for what exists",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.url.path} does not support {request.method}: use {takes}",
    }
    response = error_response(sentences.get(HTTPStatus(error.status_code), error.detail), error.status_code)
    response.headers.update(error.headers or {})
    return response


async def on_defect(request: Request, error: Exception) -> JSONResponse:
    _log.error("a request could not be answered", path=request.url.path, exc_info=error)
    return error_response("the node could not answer: this is a defect; see its log", HTTPStatus.INTERNAL_SERVER_ERROR)
