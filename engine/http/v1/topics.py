"""Operations on topics."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from evenlane.engine.errors import ConfigError
from evenlane.engine.http.request_body import BodyWaits, RequestBody, content_type
from evenlane.engine.http.routes.params import parse_params
from evenlane.engine.http.server.actor import actor_of
from evenlane.engine.http.server.scopes import Need, Scope
from evenlane.engine.http.v1.documents import ListOptions, TopicChanges, TopicDocument, TopicPage, TopicSpec
from evenlane.engine.http.v1.operations import IF_MATCH, IF_NONE_MATCH, JSON, Operation, if_revision, query_of
from evenlane.quota.topics.strict_json import TopicError, read_object
from evenlane.quota.topics.topic import MOST_BYTES

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.engine.http.topics import TopicService

_READS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_CHANGES = (*_READS, HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)
_WITH_BODY = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)
_MISSING = HTTPStatus.NOT_FOUND
_CHANGED = {HTTPStatus.OK: TopicDocument, HTTPStatus.ACCEPTED: TopicDocument}
_READ, _CHANGE = Need(Scope.READ), Need(Scope.CHANGE)
_ONE = "/topics/{project}"


class TopicOperations:
    """Documents are those of `evenlane topics get --json`. A change is answered with 202 if the leader has not accepted
    it within two seconds.
    """

    def __init__(self, topics: TopicService, idle_s: float) -> None:
        self._topics, self._idle_s = topics, idle_s
        self._waits = BodyWaits()  # a topic's body is small: nobody ends its wait

    def all(self) -> list[Operation]:
        found = {HTTPStatus.OK: TopicDocument}
        states = (("pause", self.pause), ("resume", self.resume), ("drain", self.drain))
        return [
            Operation("GET", "/topics", self.list, {HTTPStatus.OK: TopicPage}, _READS, _READ, query=ListOptions),
            Operation("GET", _ONE, self.get, found, (*_READS, _MISSING), _READ),
            Operation(
                "PUT", _ONE, self.replace, _CHANGED, (*_CHANGES, *_WITH_BODY),
                _CHANGE, bodies={JSON: TopicSpec}, headers=(IF_MATCH, IF_NONE_MATCH),
            ),
            Operation(
                "PATCH", _ONE, self.change, _CHANGED, (*_CHANGES, *_WITH_BODY, _MISSING),
                _CHANGE, bodies={JSON: TopicChanges}, headers=(IF_MATCH,),
            ),
            Operation(
                "DELETE", _ONE, self.delete, _CHANGED, (*_CHANGES, _MISSING), _CHANGE, headers=(IF_MATCH,)
            ),
            *(
                Operation(
                    "POST", f"{_ONE}/{verb}", call, _CHANGED, (*_CHANGES, _MISSING), _CHANGE, headers=(IF_MATCH,)
                )
                for verb, call in states
            ),
        ]  # fmt: skip

    async def list(self, request: Request) -> Response:
        """List topics by name, a page at a time."""
        options = query_of(request, ListOptions)
        statuses, has_more = await self._topics.list(options.after, options.limit)
        documents = [status.document() for status in statuses]
        return JSONResponse({"topics": documents, "next": statuses[-1].project if has_more else None})

    async def get(self, request: Request) -> Response:
        """Show a topic: its spec, and the settings in effect. The header ETag has its revision."""
        parse_params(request, ())
        return _answer(await self._topics.get(request.path_params["project"]), HTTPStatus.OK)

    async def replace(self, request: Request) -> Response:
        """Create a topic, or replace all of its spec.

        A field that isn't named has its default. With the header If-Match, the spec must be at this revision; with
        `If-None-Match: *`, there must be none.
        """
        fields = await self._fields(request)
        named = {name: value for name, value in fields.items() if value is not None}
        return _changed(
            await self._author(request).replace(request.path_params["project"], named, if_revision(request))
        )

    async def change(self, request: Request) -> Response:
        """Change the named fields of a topic; null restores the default."""
        fields = await self._fields(request)
        return _changed(
            await self._author(request).change(request.path_params["project"], fields, if_revision(request))
        )

    async def delete(self, request: Request) -> Response:
        """Delete a topic: puts are refused, and waiting messages are kept and paused.

        A topic that is draining continues to drain.
        """
        parse_params(request, ())
        return _changed(await self._author(request).delete(request.path_params["project"], if_revision(request)))

    async def pause(self, request: Request) -> Response:
        """Stop handling a project's messages; puts are still accepted, and wait."""
        return await self._set_state(request, "paused", "pause")

    async def resume(self, request: Request) -> Response:
        """End a pause or a drain, or restore a deleted topic."""
        return await self._set_state(request, "active", "resume")

    async def drain(self, request: Request) -> Response:
        """Refuse puts from now on; waiting messages are still handled, even those of a deleted topic."""
        return await self._set_state(request, "draining", "drain")

    def _author(self, request: Request) -> TopicService:
        """Return the service for changes of this client."""
        return self._topics.acting_for(str(actor_of(request)))

    async def _set_state(self, request: Request, state: str, verb: str) -> Response:
        parse_params(request, ())
        project = request.path_params["project"]
        return _changed(await self._author(request).set_state(project, state, verb, if_revision(request)))

    async def _fields(self, request: Request) -> dict[str, Any]:
        """Return the fields in the body. Raises ConfigError unless it is a JSON object."""
        parse_params(request, ())
        if content_type(request) != JSON:
            raise HTTPException(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body must be {JSON}: say so in the header Content-Type"
            )
        body = RequestBody(request, MOST_BYTES, "a topic", self._waits, self._idle_s)
        try:
            return read_object(await body.read(), MOST_BYTES)
        except TopicError as error:
            raise ConfigError(f"the body of this request can't be read: {error}") from None


def _changed(status: TopicStatus) -> Response:
    is_gone = (status.spec, status.in_effect, status.unreadable) == (None, None, None)
    return _answer(status, HTTPStatus.OK if status.is_accepted or is_gone else HTTPStatus.ACCEPTED)


def _answer(status: TopicStatus, code: HTTPStatus) -> Response:
    return JSONResponse(status.document(), code, {"ETag": f'"{status.revision}"'})
