"""Faults as they befall a world: begun at their time, ended at theirs, each with a note of what it touches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.admin.backlog.drop_client import DropRequest, subject
from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.ring.coordination.memory.server import Backup
from evenlane.ring.coordination.ports import Delete, Put
from tests.simulation.events import PRIORITIES, PROJECTS
from tests.simulation.history import Fault
from tests.simulation.loop import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.events import Action
    from tests.simulation.nodes import SimNode
    from tests.simulation.world import Simulation

_MOST_NODES = 5
_APPLIED_S = 1.0  # then somebody puts the topics again


def age(action: Action) -> float:
    """Seconds: of the backup that etcd goes back to."""
    return 0.1 * (1 + action.who)


class Faults:
    """`begin` is called at an action's time. What still lasts ends with `end_all`."""

    def __init__(self, world: Simulation) -> None:
        self._w = world
        self._open: dict[Fault, tuple[Action, SimNode | None, Callable[[], None]]] = {}
        self._over = False
        self._backups: dict[Action, Backup] = {}
        self._etcd_away = 0  # how often, at present: it is being restored
        self._everywhere: list[Callable[[SimNode], None]] = []

    def begin(self, action: Action) -> None:
        self._w.counts[f"fault: {action.kind}"] += 1
        name = action.kind.replace(" ", "_")
        getattr(self, f"_{name}")(action)

    def end_all(self) -> None:
        self._over = True
        for fault in list(self._open):
            self._end(fault)

    def touch_new(self, node: SimNode) -> None:
        """What touches all nodes touches one that comes later, too."""
        node.etcd.cuts += self._etcd_away
        for fault, (_, whom, _) in self._open.items():
            if whom is None and fault.kind in {"etcd silent", "nats down"}:
                (node.etcd if fault.kind == "etcd silent" else node.nats).cuts += 1

    # ---- bookkeeping

    def _victim(self, action: Action) -> SimNode | None:
        living = [node for node in self._w.nodes if not node.leaving]
        return living[action.who % len(living)] if living else None

    def _note(self, action: Action, node: SimNode | None = None, stream: str | None = None) -> Fault:
        fault = Fault(action.kind, self._w.loop.now, node, stream)
        self._w.promises.faults.append(fault)
        self._w.note(f"FAULT {action.kind}", node=node, stream=stream, lasts=round(action.lasts, 3))
        return fault

    def _moment(self, action: Action, node: SimNode | None = None, stream: str | None = None) -> None:
        fault = self._note(action, node, stream)
        fault.end = fault.start

    def _while(self, action: Action, node: SimNode | None, undo: Callable[[], None]) -> None:
        fault = self._note(action, node)
        self._open[fault] = (action, node, undo)
        if node is not None and action.same_id:  # partitions begin to move just then
            self._w.loop.call_later(action.back / 4, self._join, action)
        self._w.loop.call_later(action.lasts, self._end, fault)

    def _end(self, fault: Fault) -> None:
        if fault in self._open:
            _, _, undo = self._open.pop(fault)
            fault.end = self._w.loop.now
            self._w.note(f"END {fault.kind}", node=fault.node)
            undo()

    # ---- nodes come and go

    def _join(self, _action: Action) -> None:
        if len(self._w.nodes) < _MOST_NODES and not self._over:
            self._w.start_node()

    def _stop(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._w.stop_node(node, action.back, node.id if action.same_id else None)

    def _crash(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._moment(action, node)
            self._w.kill_node(node)
            self._w.loop.call_later(action.back, self._w.start_node, node.id if action.same_id else None)

    def _pause(self, action: Action) -> None:
        node = self._victim(action)
        if node is None or node.paused:
            return
        self._w.loop.pause(node)
        self._while(action, node, lambda: self._w.loop.resume(node))

    def _purge(self, action: Action) -> None:
        """`evenlane backlog purge`: all that waits of a project, or of one priority, is to be dropped."""
        project = PROJECTS[action.who % len(PROJECTS)]
        priority = PRIORITIES[action.who % 2] if action.same_id else None
        self._w.note("PURGE", project=project, priority=priority)
        self._w.promises.purged(project, priority)
        asked, body = subject("online", project).encode(), msgspec.json.encode(DropRequest(priority))
        for node in self._w.nodes:
            for questions in node.questions if node.nats.up else ():
                if (on_message := questions.listeners.get(subject("online", "*"))) is not None:
                    message = (asked, b"_INBOX.purge", b"", body)
                    self._w.loop.call_later(node.nats.delay(), on_message, *message, context=node.context)

    # ---- etcd

    def _etcd_cut(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._cut_etcd([node])
            self._while(action, node, lambda: self._heal_etcd([node]))

    def _etcd_silent(self, action: Action) -> None:
        self._cut_etcd(self._w.nodes)
        self._while(action, None, lambda: self._heal_etcd(self._w.nodes))

    def _cut_etcd(self, nodes: list[SimNode]) -> None:
        for node in nodes:
            node.etcd.cuts += 1
            for client in node.coordinations:
                client.disconnect_watches()

    def _heal_etcd(self, nodes: list[SimNode]) -> None:
        for node in nodes:
            node.etcd.cuts -= 1
            for client in node.coordinations:
                client.disconnect_watches()

    def back_up(self, action: Action) -> None:
        self._backups[action] = self._w.etcd.backup()

    def _etcd_restored(self, action: Action) -> None:
        self._go_back(action, self._backups[action])

    def _etcd_wiped(self, action: Action) -> None:
        self._go_back(action, Backup())

    def _go_back(self, action: Action, backup: Backup) -> None:
        """It is away for `back` seconds, and another one when it is there again. What follows lasts longer."""
        self._etcd_away += 1
        self._cut_etcd(self._w.nodes)
        self._w.etcd.go_back(backup)
        there: list[None] = []

        def start() -> None:
            if not there:
                there.append(None)
                self._etcd_away -= 1
                self._heal_etcd(self._w.nodes)

        self._w.loop.call_later(action.back, start)
        self._w.loop.call_later(action.back + _APPLIED_S, self._w.apply_topics)
        self._while(action._replace(same_id=False), None, start)

    def _etcd_flaky(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            node.etcd.failing = 0.3
            self._while(action, node, lambda: setattr(node.etcd, "failing", 0.0))

    def _lease_starved(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            node.etcd.starved = True
            self._while(action, node, lambda: setattr(node.etcd, "starved", False))

    def _watches_dropped(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._moment(action, node)
            for client in node.coordinations:
                client.disconnect_watches()

    def _etcd_leader(self, action: Action) -> None:
        self._moment(action)
        self._w.etcd.lengthen()

    def _compaction(self, action: Action) -> None:
        self._moment(action)
        etcd = self._w.etcd
        if etcd.compacted < etcd.revision:
            etcd.compact(etcd.revision)
        for client in etcd.links:
            client.disconnect_watches()

    def _second_leader(self, action: Action) -> None:
        """The leader's key goes while it still believes that it leads."""
        self._moment(action)
        self._w.etcd.txn((), [Delete(names.key("online", "leader"))], ())

    def _corrupt_key(self, action: Action) -> None:
        """Somebody with `etcdctl` writes what nobody can use: nonsense, or a plan from long ago."""
        self._moment(action)
        living = [node.id for node in self._w.nodes] or ["nobody"]
        own = living[action.who % len(living)]
        key, value = self._w.chance.choice(
            [
                (("plan", own), b"{"),
                (("plan", own), b'{"generation":1,"partitions":[0,1]}'),
                (("plan", own), b'{"generation":2,"partitions":[]}'),
                (("plan", "nobody"), b'{"generation":1,"partitions":[0,1,2]}'),
                (("nodes", "nobody"), b"[1]"),
                (("owners", "first"), b"{}"),
                (("held", 0, "x"), b"{}"),
                (("held", 0, 1), b"\xff"),
                (("done", own), b"x"),
                (("generation",), b"-"),
                (("accepted", "other"), b'{"qps":NaN}'),
            ]
        )
        self._w.note("etcd written by hand", key=key, value=value)
        self._w.etcd.txn((), [Put(names.key("online", *key), value)], ())

    # ---- the store

    def _clock_jump(self, action: Action) -> None:
        self._moment(action)
        jump = int((self._w.chance.random() * 4 - 2) * SECOND)
        self._w.server.ahead_ns += jump
        self._w.promises.jumped += abs(jump)

    def _nats_cut(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._cut_nats([node])
            self._while(action, node, lambda: self._heal_nats([node]))

    def _nats_down(self, action: Action) -> None:
        self._w.server.up = False
        self._cut_nats(self._w.nodes)

        def back() -> None:
            self._w.server.up = True
            self._heal_nats(self._w.nodes)

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
        for prefix in ("later.", "dead."):
            self._w.server.refuse(prefix)

        def taken() -> None:
            for prefix in ("later.", "dead."):
                self._w.server.accept(prefix)

        self._while(action, None, taken)

    def _lane_replaced(self, action: Action) -> None:
        lane = LaneId("lanes", action.who % self._w.script.partitions)
        self._moment(action, stream=names.stream("online", lane))
        self._w.promises.cut_back(names.stream("online", lane), 0)
        self._w.server.lose_stream(lane)

    def _lane_rolled_back(self, action: Action) -> None:
        lane = LaneId("lanes", action.who % self._w.script.partitions)
        name = names.stream("online", lane)
        self._moment(action, stream=name)
        to = max(0, self._w.server.stream(name).last - self._w.chance.randint(1, 4))
        self._w.promises.cut_back(name, to)
        self._w.server.lose_end(lane, to)
