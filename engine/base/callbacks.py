"""Calls the callbacks that wait for an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def call_all(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call each. A callback may add or remove callbacks meanwhile, which count from the next call on."""
    for callback in list(callbacks):
        callback()
