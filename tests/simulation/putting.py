"""The topics of a simulation, and the puts into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Refused
from evenlane.engine.core.wire import headers as h
from evenlane.quota.rates.backoff import Backoff
from evenlane.quota.topics.topic import Topic, accept, encode
from evenlane.ring.coordination.ports import PutKey
from evenlane.ring.hashing import partition_of
from tests.simulation.events import GROUPS
from tests.simulation.loop import SECOND
from tests.simulation.nodes import ENV

if TYPE_CHECKING:
    from tests.simulation.events import PutAt
    from tests.simulation.world import Simulation
    from tests.support.promises.history import Rules

_HOUR = 3_600 * SECOND


class Putting:
    """A producer that never gives up: it puts into the server directly, and retries while the server is down."""

    def __init__(self, world: Simulation) -> None:
        self._w = world

    def prepare(self) -> None:
        topics = {project: self._topic(rules) for project, rules in self._w.script.topics.items()}
        revision = self.apply()  # a topic without a spec counts as deleted
        accepted = {project: encode(accept(topic, revision, None)) for project, topic in topics.items()}
        self._w.etcd.txn(
            (), [PutKey(names.key(ENV, "accepted", project), raw) for project, raw in accepted.items()], ()
        )
        lanes = [LaneId(kind, p) for kind in ("lanes", "later") for p in range(self._w.script.partitions)]
        self._w.server.prepare(ENV, lanes)

    def apply(self) -> int:
        """Write the specs, as `evenlane topics apply` does while there is a leader."""
        topics = {project: self._topic(rules) for project, rules in self._w.script.topics.items()}
        specs = [PutKey(names.key(ENV, "topics", project), encode(topic)) for project, topic in topics.items()]
        return self._w.etcd.txn((), specs, ()).revision

    def _topic(self, rules: Rules) -> Topic:
        return Topic(
            qps=100_000, groups=GROUPS, burst=1_000, weight=1.0, spread=self._w.script.partitions,
            max_attempts=rules.max_attempts, ack_wait=rules.ack_wait, ordered=rules.ordered,
            dead_letter_expired=rules.dead_letter_expired, backoff=Backoff(base=0.1, factor=2.0, cap=1.0, jitter=0.1),
        )  # fmt: skip

    def _unix(self, seconds: float) -> int:
        """A time of the script in ns, by the server's clock."""
        return self._w.script.epoch_ns + int((self._w.began + seconds) * SECOND)

    def put(self, put: PutAt) -> None:
        headers = {h.ID: f"{put.project}:{put.uid}"}
        if put.key is not None:
            headers[h.KEY] = put.key
        if put.expires is not None:
            headers[h.EXPIRES] = str(self._unix(put.expires))
        partition = partition_of(put.project, put.group, self._w.script.partitions, self._w.script.partitions, "hashed")
        subject = names.lane_subject(ENV, partition, put.project, put.group, put.priority)
        if put.due is not None:
            due = self._unix(put.due)
            headers[h.DUE] = str(due)
            subject = names.later_subject(ENV, partition, put.project, put.group, put.priority, due // _HOUR)
        try:
            receipt = self._w.server.store(subject, h.encode(headers), b"x") if self._w.server.up else None
        except Refused:
            receipt = None
        if receipt is None:
            self._w.loop.call_later(0.5, self.put, put)
            return
        for cluster in self._w.active:
            self._w.clusters[cluster].acked[put.uid] = None
        self._w.counts["put"] += 1
        self._w.note("put", id=put.uid, stream=receipt.stream, sequence=receipt.sequence)
