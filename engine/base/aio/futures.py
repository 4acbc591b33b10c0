"""Ends futures whose callers may have given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Set the error of a future that isn't done."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # retrieved, so that asyncio doesn't log it if the caller has given up
