"""Logs errors of tasks that no code awaits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    import asyncio

_log = structlog.get_logger(__name__)


def log_failure(task: asyncio.Task[None]) -> None:
    """Log a task's error. A callback for `Task.add_done_callback`."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a task has failed", part=task.get_name(), exc_info=error)
