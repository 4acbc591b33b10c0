"""Error responses: JSON with one sentence, and a status that distinguishes the client's errors from the node's."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from starlette.exceptions import HTTPException

from evenlane.engine.admin.dead_letters.client import NoSuchDeadLetter
from evenlane.engine.cluster.subscriptions.registry import NoSuchSubscription
from evenlane.engine.errors import (
    BacklogFull,
    ConfigError,
    EvenlaneError,
    InvalidName,
    InvalidPut,
    InvalidTopic,
    PayloadTooLarge,
    PutRefused,
    RevisionConflict,
    TopicDraining,
    UnknownProject,
    public_name,
)
from evenlane.engine.http.dead_letter_jobs import ReplayInProgress
from evenlane.engine.http.early_answer import answer
from evenlane.engine.http.request_body import RequestTimeout
from evenlane.engine.http.topics import InvalidSpec

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import JSONResponse

_log = structlog.get_logger(__name__)


# The first class that fits an error decides.
_STATUS: tuple[tuple[type[EvenlaneError], HTTPStatus], ...] = (
    (InvalidName, HTTPStatus.BAD_REQUEST),
    (InvalidPut, HTTPStatus.BAD_REQUEST),
    (ConfigError, HTTPStatus.BAD_REQUEST),
    (InvalidSpec, HTTPStatus.BAD_REQUEST),
    (UnknownProject, HTTPStatus.NOT_FOUND),
    (NoSuchSubscription, HTTPStatus.NOT_FOUND),
    (NoSuchDeadLetter, HTTPStatus.NOT_FOUND),
    (RequestTimeout, HTTPStatus.REQUEST_TIMEOUT),
    (TopicDraining, HTTPStatus.CONFLICT),
    (InvalidTopic, HTTPStatus.CONFLICT),
    (ReplayInProgress, HTTPStatus.CONFLICT),
    (RevisionConflict, HTTPStatus.PRECONDITION_FAILED),
    (PayloadTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (PutRefused, HTTPStatus.UNPROCESSABLE_ENTITY),
    (BacklogFull, HTTPStatus.TOO_MANY_REQUESTS),
)

TEMPORARY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_RETRY_AFTER_S = 1


def status_of(error: EvenlaneError) -> HTTPStatus:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.SERVICE_UNAVAILABLE)


def answer_error(request: Request, error: EvenlaneError, more: dict[str, object] | None = None) -> JSONResponse:
    """Answer an error that was caused by a person or the environment; `more` are further fields."""
    status = status_of(error)
    response = answer(request, error_document(error) | (more or {}), status)
    if status in TEMPORARY:
        response.headers["Retry-After"] = str(_RETRY_AFTER_S)
    return response


def error_document(error: EvenlaneError) -> dict[str, object]:
    return {"error": " ".join(str(error).split()), "type": public_name(error)}


async def on_known(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EvenlaneError)
    return answer_error(request, error)


async def on_http(request: Request, error: Exception) -> JSONResponse:
    """Answer a request with an unknown path, a wrong method, or without access."""
    assert isinstance(error, HTTPException)
    takes = (error.headers or {}).get("Allow", "GET").replace(", HEAD", "").replace("HEAD, ", "")
    sentences = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {request.url.path}: see /api/v1/openapi.json for what exists",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.url.path} does not support {request.method}: use {takes}",
    }
    status = HTTPStatus(error.status_code)
    response = answer(request, _describe(sentences.get(status, error.detail), status), status)
    response.headers.update(error.headers or {})
    return response


async def on_defect(request: Request, error: Exception) -> JSONResponse:
    _log.error("a request could not be answered", path=request.url.path, exc_info=error)
    sentence = "the node could not answer: this is a defect; see its log"
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return answer(request, _describe(sentence, status), status)


def _describe(sentence: str, status: HTTPStatus) -> dict[str, object]:
    """Describe an error that has no class of Evenlane."""
    return {"error": " ".join(sentence.split()), "type": status.phrase.title().replace(" ", "")}
