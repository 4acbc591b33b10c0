"""Who makes a change by HTTP, and the audit log of such changes.

The log has one line for each request with the scope `change` whose token is valid, also if the change fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from evenlane.engine.base.short_text import shorten

if TYPE_CHECKING:
    from starlette.requests import Request

_log = structlog.get_logger(__name__)


class Actor(NamedTuple):
    """Who asks: the name of the token, and the client's address. `token` is empty if the request has none."""

    token: str = ""
    address: str = ""

    def __str__(self) -> str:
        return self.token or self.address or "unknown"


NOBODY = Actor()


def actor_of(request: Request) -> Actor:
    """Return who asks, after the access check."""
    return getattr(request.state, "actor", NOBODY)


def make_actor(token: str, request: Request) -> Actor:
    address = request.client.host if request.client is not None else ""
    return Actor(shorten(token), address)


def note_details(request: Request, **details: Any) -> None:
    """Add fields to the request's line in the audit log, such as what it selects, and how many that were."""
    request.state.details = getattr(request.state, "details", {}) | {
        name: value for name, value in details.items() if value is not None
    }


def write_audit(request: Request, *, error: str | None) -> None:
    """Write the line of a request. `error` says why the change failed, None if it didn't."""
    actor, details = actor_of(request), dict(getattr(request.state, "details", {}))
    if error is not None:
        details["error"] = shorten(error)
    project = request.path_params.get("project", "")
    action = f"{request.method} {request.url.path}"
    _log.info(
        "audit", action=shorten(action), project=shorten(project), by=str(actor), address=actor.address, **details
    )
