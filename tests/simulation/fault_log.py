"""The faults of a simulation as they begin and end, each with a record of what it touches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.promises.history import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.events import Action
    from tests.simulation.nodes import SimNode
    from tests.simulation.world import Simulation

_MOST_NODES = 5


class FaultLog:
    """Begins and ends faults. A fault that lasts ends by itself, or with `end_all`."""

    def __init__(self, world: Simulation) -> None:
        self._w = world
        self._open: dict[Fault, tuple[Action, SimNode | None, Callable[[], None]]] = {}
        self._over = False

    def end_all(self) -> None:
        self._over = True
        for fault in list(self._open):
            self._end(fault)

    def _victim(self, action: Action) -> SimNode | None:
        living = [node for node in self._w.processes.nodes if not node.leaving]
        return living[action.target % len(living)] if living else None

    def _cluster(self, action: Action) -> str:
        """The cluster that an action touches, of those that have nodes."""
        return self._w.active[action.target % len(self._w.active)]

    def _note(self, action: Action, node: SimNode | None = None, stream: str | None = None) -> Fault:
        fault = Fault(action.kind, self._w.loop.now, node, stream)
        self._w.add_fault(fault)
        self._w.note(f"FAULT {action.kind}", node=node, stream=stream, lasts=round(action.lasts, 3))
        return fault

    def _moment(self, action: Action, node: SimNode | None = None, stream: str | None = None) -> None:
        fault = self._note(action, node, stream)
        fault.end = fault.start

    def _while(self, action: Action, node: SimNode | None, undo: Callable[[], None]) -> None:
        fault = self._note(action, node)
        self._open[fault] = (action, node, undo)
        if node is not None and action.same_id:  # partitions begin to move at the same time
            self._w.loop.call_later(action.back / 4, self._add_node, node.cluster)
        self._w.loop.call_later(action.lasts, self._end, fault)

    def _end(self, fault: Fault) -> None:
        if fault in self._open:
            _, _, undo = self._open.pop(fault)
            fault.end = self._w.loop.now
            self._w.note(f"END {fault.kind}", node=fault.node)
            undo()

    def _join(self, action: Action) -> None:
        self._add_node(self._cluster(action))

    def _add_node(self, cluster: str) -> None:
        if len(self._w.processes.of(cluster)) < _MOST_NODES and not self._over:
            self._w.processes.start(None, cluster)
