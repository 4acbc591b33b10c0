"""Keeps messages of a kind that no handler of this node takes. They stay in their lane, and nobody waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.queues.project_limit import ProjectLimit
from evenlane.engine.node.queues.registry import NO_HANDLER

if TYPE_CHECKING:
    from evenlane.engine.core.queue.entry import Entry, MessageRef
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.queues.withheld import WithheldProjects

_log = structlog.get_logger(__name__)

_MOST = 4_096  # per project, some 200 bytes each
_MOST_LOGGED = 1_000  # kinds
_LONGEST_KIND = 80  # characters in the log


class UnhandledMessages:
    """Messages without a handler. The handlers of a node don't change, so they wait until their partition moves to
    another node, or their topic is pushed. A project with too many of them is withheld.

    Invariants: `_of` has the messages by queue, with their lane's generation at the time, and `queue.unhandled` is
    their number.
    """

    def __init__(self, withheld: WithheldProjects) -> None:
        self._limit = ProjectLimit(withheld, NO_HANDLER, _MOST)
        self._of: dict[Queue, dict[MessageRef, int]] = {}
        self._logged: set[tuple[str, str | None]] = set()

    def takes(self, queue: Queue, entry: Entry) -> bool:
        """Whether no handler takes the message."""
        handling = queue.rules.handling
        kinds = handling.kinds
        if kinds is None or queue.rules.pushed:
            return False
        kind = h.value(entry[3], handling.kind_header)
        if kind is not None and kind in kinds:
            return False
        self._log(queue.project, kind)
        return True

    def add(self, queue: Queue, place: MessageRef, generation: int) -> None:
        self._of.setdefault(queue, {})[place] = generation
        queue.unhandled += 1
        self._limit.add(queue.project)

    def list_waiting(self, queue: Queue) -> list[MessageRef]:
        """The messages of a queue, without those of a lane that was handed over or replaced."""
        return [place for place, known in self._of.get(queue, {}).items() if place.lane.generation == known]

    def discard(self, queue: Queue, place: MessageRef) -> None:
        """Drop a message that has ended. No effect if it doesn't wait here."""
        if self._of.get(queue, {}).pop(place, None) is not None:
            queue.unhandled -= 1
            self._limit.remove(queue.project)
            if not self._of[queue]:
                del self._of[queue]

    def discard_stale(self) -> None:
        """Drop messages of lanes that were handed over or replaced."""
        for queue in list(self._of):
            for place, known in list(self._of[queue].items()):
                if place.lane.generation != known:
                    self.discard(queue, place)

    def _log(self, project: str, kind: str | None) -> None:
        if (project, kind) in self._logged or len(self._logged) >= _MOST_LOGGED:
            return
        self._logged.add((project, kind))
        if kind is None:
            _log.warning("messages without a kind wait: this node has no handler for them", project=project)
            return
        _log.warning(
            "messages of a kind wait: this node has no handler for them", project=project, kind=kind[:_LONGEST_KIND]
        )
