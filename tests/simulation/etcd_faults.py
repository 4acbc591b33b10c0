"""Faults of etcd, and of the ways to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.ring.coordination.memory.server import Backup
from evenlane.ring.coordination.ports import DeleteKey, PutKey
from tests.simulation.fault_log import FaultLog
from tests.simulation.nodes import ENV

if TYPE_CHECKING:
    from tests.simulation.events import Action
    from tests.simulation.nodes import SimNode
    from tests.simulation.world import Simulation

_APPLIED_S = 1.0  # after etcd went back, until somebody applies the topics, and creates the subscription, again


def backup_age(action: Action) -> float:
    """Seconds: of the backup that etcd goes back to."""
    return 0.1 * (1 + action.target)


class EtcdFaults(FaultLog):
    """The methods are the kinds of faults, with `_` for each space."""

    def __init__(self, world: Simulation) -> None:
        super().__init__(world)
        self._backups: dict[Action, Backup] = {}
        self._etcd_away = 0  # restores that are under way

    def _etcd_cut(self, action: Action) -> None:
        if (node := self._victim(action)) is not None:
            self._cut_etcd([node])
            self._while(action, node, lambda: self._heal_etcd([node]))

    def _etcd_silent(self, action: Action) -> None:
        self._cut_etcd(self._w.processes.connected)
        self._while(action, None, lambda: self._heal_etcd(self._w.processes.connected))

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
        """etcd is away for `back` seconds, and then has the data of the backup. The fault lasts longer than that."""
        self._etcd_away += 1
        self._cut_etcd(self._w.processes.connected)
        self._w.etcd.go_back(backup)
        there: list[None] = []

        def start() -> None:
            if not there:
                there.append(None)
                self._etcd_away -= 1
                self._heal_etcd(self._w.processes.connected)

        self._w.loop.call_later(action.back, start)
        self._w.loop.call_later(action.back + _APPLIED_S, self._w.apply_topics)
        if self._w.script.audit is not None:
            self._w.loop.call_later(action.back + _APPLIED_S, self._w.creating.repeat)
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
        """The leader's key is deleted while the node still leads."""
        self._moment(action)
        self._w.etcd.txn((), [DeleteKey(names.key(self._cluster(action), "leader"))], ())

    def _corrupt_key(self, action: Action) -> None:
        """Somebody writes a useless value with `etcdctl`: nonsense, or an old plan."""
        self._moment(action)
        cluster = self._cluster(action)
        living = [node.id for node in self._w.processes.of(cluster)] or ["nobody"]
        own = living[action.target % len(living)]
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
        self._w.etcd.txn((), [PutKey(names.key(ENV if key[0] == "accepted" else cluster, *key), value)], ())
