"""Memberships of several nodes on etcd in memory. Their partition hosts only record their calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from evenlane.engine.base import names
from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.ownership.lease import NodeLease
from evenlane.engine.cluster.ownership.membership import Membership
from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.core.lane.handoff_state import HandoffState, StreamIdentity
from evenlane.engine.core.records import settle_record
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Unavailable
from evenlane.ring.membership.records import NodeRecord, OwnerRecord, PlanRecord, decode, encode
from tests.support.until import until

ENV = "online"
PARTITIONS = 4


def key(*parts: str | int) -> str:
    return names.key(ENV, *parts)


class Client(MemoryCoordination):
    """A client whose answers can be lost or delayed, chosen by the first word of the keys in a call."""

    def __init__(self, store: Any = None) -> None:
        super().__init__(store)
        self.lose: set[str] = set()
        """Transactions on these keys are carried out, and their answers lost."""
        self.gates: dict[str, asyncio.Event] = {}
        """Calls on these keys wait before they return their answer."""
        self.waiting = 0
        self.late: dict[str, asyncio.Event] = {}
        """Transactions on these keys wait before they are carried out."""
        self.delayed = 0
        self.deaf = False
        """Its watches receive nothing."""

    @property
    def is_answering(self):
        return super().is_answering and not self.deaf

    def peer(self) -> Client:
        return Client(self.store)

    async def list(self, prefix):
        found = await super().list(prefix)
        await self._answer(prefix)
        return found

    async def txn(self, compare, then, otherwise=()):
        about = [each.key for each in (*compare, *then)]
        for each in about:
            if (gate := self.late.get(_word(each))) is not None:
                self.delayed += 1
                await gate.wait()
        result = await super().txn(compare, then, otherwise)
        if any(_word(each) in self.lose for each in about):
            raise Unavailable("the answer is lost")
        for each in about:
            await self._answer(each)
        return result

    async def _answer(self, about):
        if (gate := self.gates.get(_word(about))) is not None:
            self.waiting += 1
            await gate.wait()


def _word(about: str) -> str:
    return about.removeprefix(key("")).partition("/")[0]


class RecordingHost:
    """The partition host of a node. `runs[partition]` is the handoff state when it is handed over, `logs[partition]` a
    record of its settle log.
    """

    def __init__(self, cluster: MembershipCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.calls: list[tuple[str, int]] = []
        self.open_now: dict[int, int] = {}
        self.held: dict[int, list[Any]] = {}
        self.changed: list[Any] = []
        self.gone: list[Any] = []
        self.runs: dict[int, HandoffState] = {}
        self.logs: dict[int, bytes] = {}
        self.lent: dict[int, dict[str, float]] = {}
        self.opening = asyncio.Event()  # cleared: taking over takes time
        self.opening.set()
        self.durable = True

    def expect(self, *, more):
        self.is_expecting = more

    async def open(self, number, epoch, held=(), known=None, lease=0):
        self.calls.append(("open", number))
        self.held[number] = list(held)
        await self.opening.wait()
        self.cluster.check(number)
        self.open_now[number] = epoch

    async def read_logs(self, number):
        if number in self.logs:
            settle_record.decode(self.logs[number])

    def list_owed(self, number):
        return self.lent.get(number, {})

    def stop_partition(self, number):
        self.calls.append(("stop", number))
        self.open_now.pop(number, None)

    async def hand_off(self, number, epoch):
        self.calls.append(("hand over", number))
        over = self.runs.get(number)
        return {} if over is None else {"lanes": over}

    async def drop_partition(self, number, epoch):
        self.calls.append(("drop", number))

    def on_held_change(self, number, record):
        self.changed.append(record)

    def on_held_release(self, number, record):
        self.on_held_gone(number, record)

    def on_held_gone(self, number, record):
        if record.is_running:
            self.gone.append(record)

    def is_held_durable(self, number, record):
        return self.durable

    def run(self, number, *sequences):
        """Handlers of these messages still run when the partition is handed over."""
        self.runs[number] = HandoffState(0, StreamIdentity("s", 9, 9, 0), set(sequences), over=True)
        return self.runs[number]

    def end(self, number, sequence):
        """One of these handlers has ended."""
        over = self.runs[number]
        over.running.discard(sequence)
        over.done.append(sequence)
        over.on_change()


class Node:
    """A session: lease, membership and host."""

    def __init__(self, cluster: MembershipCluster, name: str, ttl: int, host: Any = None) -> None:
        self.name, self.client, self.partitions = name, cluster.client.peer(), cluster.partitions
        self.host = host or RecordingHost(cluster, name)
        self.lost: list[str] = []
        self.fatal: list[str] = []
        self.carried_out: list[tuple[int, int]] = []
        self.leaving = False
        self.lease = NodeLease(self.client, ENV, name, ttl, self._record, self._trust, self.lost.append)
        self.records, self.moves = RecordReader(ENV), Counter()
        self.troubles = Troubles()
        self.unreadable = UnreadableRecords(self.troubles)
        self.membership: Membership | None = None

    def _record(self):
        return NodeRecord(host=self.name, leaving=self.leaving)

    def _trust(self, until):
        if self.membership is not None:
            self.membership.on_renewed(until)

    async def start(self):
        await self.lease.join()
        self.membership = Membership(
            self.client, ENV, self.name, self.lease, self.host, partitions=self.partitions,
            records=self.records, moves=self.moves, unreadable=self.unreadable,
            on_plan=lambda count, generation: self.carried_out.append((count, generation)),
            on_lost=self.lost.append, on_fatal=self.fatal.append,
        )  # fmt: skip
        self.membership.start()

    @property
    def owned(self):
        return self.membership.member.owned

    async def crash(self):
        """End as by kill -9; its lease ends."""
        await self.membership.end()
        self.host.open_now.clear()
        for task in self.lease._tasks:
            task.cancel()
        await self.client.revoke(self.lease.id)

    async def end(self):
        if self.membership is not None:
            await self.membership.end()
        self.client.heal()
        await self.lease.end()
        await self.client.close()


class MembershipCluster:
    """A cluster. Tests write the `plan`; `check` is called at each takeover of a partition."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self.client = Client()
        self.nodes: list[Node] = []
        self.generation = 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        for node in self.nodes:
            await node.end()
        if error[0] is None:
            assert [] == [reason for node in self.nodes for reason in node.fatal]

    async def join(self, *names_: str, ttl: int = 60, host: Any = None):
        made = []
        for name in names_:
            node = Node(self, name, ttl, host)
            self.nodes.append(node)
            made.append(node)
            await node.start()
        return made if len(made) > 1 else made[0]

    def check(self, number):
        """Z1: no other node has it open."""
        assert not [node.name for node in self.nodes if number in node.host.open_now]

    async def plan(self, **partitions: list[int]):
        self.generation += 1
        for name, planned in partitions.items():
            record = PlanRecord(generation=self.generation, partitions=planned)
            await self.client.put(key("plan", name), encode(record))

    async def owners(self):
        """Partition -> node, by the owner keys."""
        listing = await MemoryCoordination.list(self.client, key("owners", ""))
        return {int(i.key.rpartition("/")[2]): decode(OwnerRecord, i.key, i.value).id for i in listing.items}

    async def held(self):
        listing = await MemoryCoordination.list(self.client, key("held", ""))
        return listing.items

    async def own(self, **partitions: list[int]):
        """Write a plan, and wait until the nodes own these partitions."""
        await self.plan(**partitions)
        nodes = {node.name: node for node in self.nodes}
        await until(lambda: all(sorted(p) == nodes[name].owned for name, p in partitions.items()))

    def changes_of(self, prefix):
        """The changes of keys under a prefix, in order: (kind, last part, lease)."""
        return [
            (event.kind, event.item.key.removeprefix(key(prefix, "")), event.item.lease)
            for event in self.client.store._history
            if event.item.key.startswith(key(prefix, ""))
        ]
