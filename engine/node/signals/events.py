"""Events that parts of the node report upwards, to parts that are built after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue


class NodeEvents(Protocol):
    """Implemented by the node, which passes each event on to the parts that act on it."""

    def on_message_missing(self, queue: Queue, lane: Lane, sequence: int, generation: int) -> None:
        """A message whose sequence was known is not in its stream."""

    def on_records_change(self) -> None:
        """The store refuses in-flight records, or accepts them again."""

    def on_records_idle(self) -> None:
        """No recorded message is in flight any more."""

    def on_stream_replaced(self, lane: FedLane) -> None:
        """A lane was reset because its stream was replaced: it must be fed from the start."""

    def on_fenced(self, lane: Lane, reason: str) -> None:
        """A newer owner writes to the lane's settle log."""
