"""Carries out `evenlane backlog peek`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evenlane.engine.admin.backlog.peek import peek as look
from evenlane.engine.admin.session import reached

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings


async def peek(settings: Settings, project: str, priority: str | None, limit: int) -> dict[str, Any]:
    """Return the backlog in JSON types. Raises InvalidName, UnknownProject, Unreachable."""
    async with reached(settings, project) as outside:
        ttl = outside.accepted.topic.ttl if outside.accepted is not None else 0.0
        parts = await look(
            outside.store, settings.env, outside.cluster_config, project, outside.priorities(priority), limit, ttl
        )
        if outside.accepted is None and not any(part["waiting"] or part["delayed"] for part in parts):
            raise outside.unknown()
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"project": project, "env": settings.env, "at": at, "priorities": parts}
