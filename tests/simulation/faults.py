"""Faults of a simulation: they begin at the times that its script says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.admin.backlog.drop_client import DropRequest, subject
from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from tests.simulation.etcd_faults import EtcdFaults
from tests.simulation.events import PRIORITIES, PROJECTS
from tests.simulation.loop import SECOND
from tests.simulation.nodes import ENV

if TYPE_CHECKING:
    from tests.simulation.events import Action
    from tests.simulation.nodes import SimNode


_COPIES = ("later.", "again.", "dead.")  # what subjects of copies begin with


class Faults(EtcdFaults):
    """`begin` is called at the time of an action."""

    def begin(self, action: Action) -> None:
        self._w.counts[f"fault: {action.kind}"] += 1
        name = action.kind.replace(" ", "_")
        getattr(self, f"_{name}")(action)

    def touch_new(self, node: SimNode) -> None:
        """A fault that touches all nodes touches a node that starts later, too."""
        node.etcd.cuts += self._etcd_away
        for fault, (_, whom, _) in self._open.items():
            if whom is None and fault.kind in {"etcd silent", "nats down"}:
                (node.etcd if fault.kind == "etcd silent" else node.nats).cuts += 1

    # ---- nodes come and go

    def _stop(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._w.processes.stop(node, action.back, node.id if action.same_id else None)

    def _crash(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._moment(action, node)
            self._w.processes.remove(node)
            own = node.id if action.same_id else None
            self._w.loop.call_later(action.back, self._w.processes.start, own, node.cluster)

    def _pause(self, action: Action) -> None:
        node = self._victim(action)
        if node is None or node.paused:
            return
        self._w.loop.pause(node)
        self._while(action, node, lambda: self._w.loop.resume(node))

    def _purge(self, action: Action) -> None:
        """`evenlane backlog purge`: the nodes drop all waiting messages of a project, or of one priority. It
        concerns the unnamed subscription alone.
        """
        project = PROJECTS[action.target % len(PROJECTS)]
        priority = PRIORITIES[action.target % 2] if action.same_id else None
        self._w.note("PURGE", project=project, priority=priority)
        self._w.promises.purged(project, priority)
        asked, body = subject(ENV, project).encode(), msgspec.json.encode(DropRequest(priority))
        for node in self._w.processes.of(ENV):
            for questions in node.questions if node.nats.up else ():
                if (on_message := questions.listeners.get(subject(ENV, "*"))) is not None:
                    message = (asked, b"_INBOX.purge", b"", body)
                    self._w.loop.call_later(node.nats.delay(), on_message, *message, context=node.context)

    # ---- the store

    def _clock_jump(self, action: Action) -> None:
        self._moment(action)
        jump = int((self._w.chance.random() * 4 - 2) * SECOND)
        self._w.server.ahead_ns += jump
        for promises in self._w.clusters.values():
            promises.jumped += abs(jump)

    def _nats_cut(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._cut_nats([node])
            self._while(action, node, lambda: self._heal_nats([node]))

    def _nats_down(self, action: Action) -> None:
        self._w.server.up = False
        self._cut_nats(self._w.processes.connected)

        def back() -> None:
            self._w.server.up = True
            self._heal_nats(self._w.processes.connected)

        self._while(action, None, back)

    def _cut_nats(self, nodes: list[SimNode]) -> None:
        for node in nodes:
            node.nats.cuts += 1
            noticed = self._w.chance.choice((0.0, 0.02, 1.0)) * self._w.chance.random()
            for store in node.stores:
                self._w.loop.call_later(noticed, store.lose, context=node.context)

    def _heal_nats(self, nodes: list[SimNode]) -> None:
        for node in nodes:
            node.nats.cuts -= 1
            for store in node.stores:
                self._w.loop.call_later(node.nats.delay(), store.again, context=node.context)

    def _nats_flaky(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            node.nats.failing = 0.1
            self._while(action, node, lambda: setattr(node.nats, "failing", 0.0))

    def _acks_late(self, action: Action) -> None:
        self._w.server.delay_acks(self._w.chance.random() * 2)
        self._while(action, None, lambda: self._w.server.delay_acks(0))

    def _acks_never(self, action: Action) -> None:
        self._w.server.delay_acks(math.inf)
        self._while(action, None, lambda: self._w.server.delay_acks(0))

    def _copies_refused(self, action: Action) -> None:
        for prefix in _COPIES:
            self._w.server.refuse(prefix)

        def taken() -> None:
            for prefix in _COPIES:
                self._w.server.accept(prefix)

        self._while(action, None, taken)

    def _lane_replaced(self, action: Action) -> None:
        lane = LaneId("lanes", action.target % self._w.script.partitions)
        self._moment(action, stream=names.stream(ENV, lane))
        self._w.cut_back(names.stream(ENV, lane), 0)
        self._w.server.lose_stream(lane)

    def _lane_rolled_back(self, action: Action) -> None:
        lane = LaneId("lanes", action.target % self._w.script.partitions)
        name = names.stream(ENV, lane)
        self._moment(action, stream=name)
        to = max(0, self._w.server.stream(name).last - self._w.chance.randint(1, 4))
        self._w.cut_back(name, to)
        self._w.server.lose_end(lane, to)
