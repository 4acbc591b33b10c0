"""Finds where a subscription begins in a lane, by the time of its first message."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import LaneState, Store


async def find_start(store: Store, lane: LaneId, state: LaneState, at: int) -> int:
    """The sequence of the first message in the lane that arrived at `at` (unix ns) or later, if any. `state` is that of
    its stream; a message that has arrived since then counts in any case. Raises Lost.
    """
    first = max(1, state.first)
    return first if at == 0 else max(first, min(await store.find_since(lane, at), state.last + 1))
