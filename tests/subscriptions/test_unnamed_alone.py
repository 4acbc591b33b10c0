"""What nodes ask their servers as long as an environment has one subscription, on whole nodes in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.cluster.subscriptions.registry import registry_key
from evenlane.engine.core.records import settle_record
from evenlane.engine.producer.put import Put
from evenlane.ring.coordination.ports import Absent
from tests.days.cluster import VirtualCluster
from tests.simulation.loop import SECOND
from tests.support.until import until
from tests.support.virtual_time import run_virtually

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.store.memory.store import MemoryStore

_EPOCH = 1_790_000_000 * SECOND
_REGISTRY = registry_key("online")
_FOR_OTHERS = {"read_last_record", "read_records", "find_since", "size", "create_own_streams", "delete_own_streams"}


class Call(NamedTuple):
    """A request of a port, as its caller made it."""

    name: str
    arguments: tuple[Any, ...]


class Transaction(NamedTuple):
    """What a transaction with etcd compares, and what it changes then."""

    compares: list[Any]
    changes: list[Any]

    @property
    def is_claim(self) -> bool:
        """Whether it makes a node the owner of a partition that has none."""
        return any(isinstance(each, Absent) and "/owners/" in each.key for each in self.compares)


class Recorder:
    """A port that notes each request before it passes it on."""

    def __init__(self, port: Any, note: Callable[[Call], None]) -> None:
        self._port, self._note = port, note

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found

        def pass_on(*arguments: Any, **named: Any) -> Any:
            self._note(Call(name, arguments))
            return found(*arguments, **named)

        return pass_on


class RecordedCluster(VirtualCluster):
    """A cluster that records what its nodes and commands ask etcd and the store."""

    def __init__(self, loop: Any) -> None:
        self.to_etcd: list[Call] = []
        self.to_store: list[Call] = []
        super().__init__(loop, _EPOCH)

    def coordination(self) -> Any:
        return Recorder(super().coordination(), self.to_etcd.append)

    def node_store(self, cluster: str, ahead_ns: int) -> MemoryStore:
        recorder: Any = Recorder(super().node_store(cluster, ahead_ns), self.to_store.append)
        return recorder  # type: ignore[no-any-return]

    def transactions(self) -> list[Transaction]:
        of = [call.arguments for call in self.to_etcd if call.name == "txn"]
        return [Transaction(list(compares), list(changes)) for compares, changes, *_ in of]

    def records(self) -> list[settle_record.SettleRecord]:
        """What was appended to settle logs."""
        return [settle_record.decode(call.arguments[1]) for call in self.to_store if call.name == "append_log"]


def recorded() -> RecordedCluster:
    """Two nodes take partitions over, hand some to each other, and handle messages, delayed ones and retries."""
    kept: list[RecordedCluster] = []

    async def whole(loop: Any) -> None:
        async with RecordedCluster(loop) as cluster:
            kept.append(cluster)
            await cluster.start("n1")
            await cluster.topic("acme")
            producer = await cluster.producer()
            leaving = await cluster.start("n2")
            for number in range(60):
                order = {"order": "fail 1"} if number % 7 == 0 else None
                delay = 5.0 if number % 5 == 0 else None
                await cluster.put(producer, [Put("acme", b"x", id=f"m-{number}", headers=order, delay=delay)])
                await asyncio.sleep(0.1)
            await cluster.stop(leaving)
            await until(lambda: len(cluster.handled[""]) == 60 and cluster.waiting() == 0, 60.0, "all to be handled")
            assert not cluster.refused

    run_virtually(whole)
    return kept[0]


def test_unnamed_alone_asks_for_nothing_that_others_need() -> None:
    """K10: one watch a node more, on a key that isn't there, and one comparison a claim. No settle log of others is
    read, no key of a subscription is written, and the records are those of before.
    """
    cluster = recorded()
    watched = Counter(call.arguments[0] for call in cluster.to_etcd if call.name == "watch")
    assert watched[_REGISTRY] == 2
    transactions = cluster.transactions()
    assert sum(each.is_claim for each in transactions) >= 8
    for each in transactions:
        assert [Absent(_REGISTRY)] * each.is_claim == [found for found in each.compares if found.key == _REGISTRY]
    written = {change.key for each in transactions for change in each.changes}
    written |= {call.arguments[0] for call in cluster.to_etcd if call.name == "put"}
    assert not [key for key in written if "subscription" in key or "/seen/" in key]
    asked = Counter(call.name for call in cluster.to_store)
    assert not _FOR_OTHERS & asked.keys()
    assert asked["find_clusters"] <= 2
    assert {record.version for record in cluster.records()} == {settle_record.VERSION}
