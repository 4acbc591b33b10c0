"""Waits until every process that removes messages follows a new registry of subscriptions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.subscriptions.living_nodes import find_older
from evenlane.ring.membership.records import OwnerRecord, SeenRecord

if TYPE_CHECKING:
    from evenlane.ring.coordination.ports import Coordination, KeyValue

_POLL_S = 0.2


class RemoverState(NamedTuple):
    """The removers as of one moment: the partitions without an owner, the owners that may still follow an older
    registry (by partition; "" if the owner key can't be read), and the nodes of older releases.
    """

    unowned: frozenset[int]
    late: dict[int, str]
    older: list[str]


class RemoverWatch:
    """Follows the owners of a cluster. Those of the cluster without a name remove messages from the shared streams."""

    def __init__(self, coordination: Coordination, cluster: str, partitions: int) -> None:
        self._coordination, self._cluster, self._partitions = coordination, cluster, partitions

    async def wait(self, revision: int, limit_s: float, *, needs_claim: bool = False) -> RemoverState:
        """Wait until no owner follows a registry before `revision`, until a node of an older release is there, or for
        at most `limit_s` seconds. `needs_claim`: an owner that follows it has claimed its partition since. Raises
        CoordinationError.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while True:
            found = await self.look(revision, needs_claim=needs_claim)
            if not found.late or found.older or loop.time() >= end:
                return found
            await asyncio.sleep(min(_POLL_S, max(0.0, end - loop.time())))

    async def look(self, revision: int, *, needs_claim: bool = False) -> RemoverState:
        """Read the owner keys first: an owner that claims later compares the registry in its transaction."""
        owned = await self._list_owners()
        seen = await self._list("seen") if owned and not needs_claim else {}
        late = {
            partition: self._owner(item)
            for partition, item in owned.items()
            if item.create_revision <= revision and not self._has_seen(item, seen, revision)
        }
        older = await find_older(self._coordination, [self._cluster])
        return RemoverState(frozenset(range(self._partitions)) - owned.keys(), late, older)

    def _has_seen(self, owner: KeyValue, seen: dict[str, KeyValue], revision: int) -> bool:
        """Whether the owner says so under the lease of its claim: a node of the same id may be another process."""
        item = seen.get(self._owner(owner))
        if item is None or item.lease != owner.lease:
            return False
        record = self._records().read(SeenRecord, item.key, item.value)
        return record is not None and record.revision >= revision

    def _owner(self, item: KeyValue) -> str:
        record = self._records().read(OwnerRecord, item.key, item.value)
        return "" if record is None else record.id

    def _records(self) -> RecordReader:
        return RecordReader(self._cluster, lambda _reason: None)  # the nodes log what can't be decoded

    async def _list_owners(self) -> dict[int, KeyValue]:
        found = {}
        for name, item in (await self._list("owners")).items():
            partition = names.number(name)
            if partition is not None and partition < self._partitions:
                found[partition] = item
        return found

    async def _list(self, kind: str) -> dict[str, KeyValue]:
        prefix = names.key(self._cluster, kind, "")
        return {item.key.removeprefix(prefix): item for item in (await self._coordination.list(prefix)).items}
