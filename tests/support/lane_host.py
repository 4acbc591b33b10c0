"""The host of a lane that is built without a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Host(NamedTuple):
    """A host. `open_queue` finds a queue; `on_queue_ready` is called when one gets its first message."""

    open_queue: Callable[..., Any] = lambda *_: None
    on_queue_ready: Callable[..., Any] = lambda _: None
    needs_stray_bodies: bool = True
