"""Decides what an owner may remove from its streams: only what all subscriptions have settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import RegistryView
from evenlane.engine.core.lane.log_state import LogState, fold
from evenlane.engine.core.lane.retention import Retention
from evenlane.engine.core.records import settle_record

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.lane.settled_set import SettledSet
    from evenlane.engine.core.ports import Store

_Claim: TypeAlias = settle_record.SettleRecord | LogState  # each says of which stream it is


class OtherLog(NamedTuple):
    """What another subscription's settle log says of a lane: the settled messages, and its last record."""

    settled: "SettledSet"
    end: bytes


class RemovalBound:
    """What the other subscriptions of the environment allow the owners of one cluster to remove.

    `view` is the registry that counts from now on. A removal that was planned by an earlier one may still be under way.

    A subscription is deleted once its settle logs are gone. One that is only missing in the registry still counts: an
    etcd that was restored from a backup may have lost it.

    `others` are the clusters of all other subscriptions; None: nobody knows them. `is_shared`: whether they need the
    messages, too, or might; or settled messages are kept.

    Invariants:
    - `_unlisted` has the clusters that aren't in the registry and may have settle logs.
    - `others` and `is_shared` follow from `view` and `_unlisted`. They are kept because each pass asks for each lane.
    - `_recognised` has, for a lane and another cluster, the generation in which a record of that cluster's log was
      found to be about the very stream, and the record's highest message. A rolled-back stream has another
      generation. A record with a higher message may be about the stream as it was before: it was under way meanwhile.
    """

    def __init__(self, store: Store, cluster: str, partitions: int) -> None:
        self._store, self._cluster, self._partitions = store, cluster, partitions
        self.view = RegistryView()
        self._set_unlisted(frozenset())
        self._recognised: dict[tuple[Lane, str], tuple[int, int]] = {}

    def adopt(self, view: RegistryView) -> None:
        """Go by this registry from now on. A subscription that it doesn't list any more counts until `check_unlisted`
        has found out that it is deleted.
        """
        before = self.view.list_others(self._cluster) or ()
        self.view = view
        self._set_unlisted(self._unlisted.union(before).difference(view.list_others(self._cluster) or ()))

    async def recall(self) -> None:
        """Take all clusters into account that had settle logs when the node has prepared its streams. Raises Lost."""
        if not self.is_publisher:
            found = await self._store.find_clusters()
            self._set_unlisted(found.difference([self._cluster], self.view.list_others(self._cluster) or ()))

    def _set_unlisted(self, unlisted: frozenset[str]) -> None:
        """Take these clusters into account, and those that the registry lists."""
        self._unlisted = unlisted
        listed = self.view.list_others(self._cluster)
        self.others: tuple[str, ...] | None = None if listed is None else (*listed, *sorted(unlisted))
        self.is_shared = self.others != () or self.view.retain is not None

    @property
    def has_unlisted(self) -> bool:
        """Whether the node counts subscriptions that the registry doesn't list."""
        return bool(self._unlisted)

    async def check_unlisted(self) -> frozenset[str]:
        """Look up whether the clusters that the registry doesn't list still have settle logs. Returns those that do.
        Raises Lost.
        """
        if self._unlisted:
            found = await self._store.find_clusters(again=True)
            self._set_unlisted(self._unlisted & found)  # the former may have grown meanwhile
        return self._unlisted

    @property
    def record_version(self) -> int:
        """The version of the records that settle logs get."""
        return settle_record.SHARED_VERSION if self.view.exists or self._unlisted else settle_record.VERSION

    @property
    def retention(self) -> Retention | None:
        """How long settled messages are kept. Each stream of each partition may have the same share of the bytes."""
        if (retain := self.view.retain) is None:
            return None
        return Retention(retain.age, max(1, retain.most_bytes // (len(names.SHARED_KINDS) * self._partitions)))

    @property
    def is_publisher(self) -> bool:
        """Whether the owners of another cluster remove the messages, and follow the settle logs of this one."""
        return not self.view.is_remover(self._cluster)

    async def find_watermark(self, lane: Lane) -> int:
        """The highest sequence up to which this cluster and all others have settled the lane durably. Raises Lost."""
        clusters = self.others
        if clusters is None:
            return 0
        lowest = lane.removal.durable_watermark
        for cluster in clusters:
            if lowest <= lane.removal.purged:
                break
            lowest = min(lowest, await self._watermark_of(cluster, lane))
        return lowest

    async def _watermark_of(self, cluster: str, lane: Lane) -> int:
        """How far another cluster has settled the lane. 0 if its log says nothing of this very stream."""
        record = await self._read_last(cluster, lane)
        return record.watermark if record is not None and await self._recognise(cluster, lane, record) else 0

    async def _read_last(self, cluster: str, lane: Lane) -> settle_record.SettleRecord | None:
        raw = await self._store.read_last_record(lane.id, cluster)
        try:
            return settle_record.decode(raw) if raw is not None else None
        except (ValueError, settle_record.UnknownVersion):
            return None

    async def find_ends(self, lane: Lane) -> list[bytes] | None:
        """The last record of the lane's settle log in each other subscription. None if one of them isn't known, or has
        no record. Raises Lost.
        """
        ends = [await self._store.read_last_record(lane.id, cluster) for cluster in self.others or ()]
        found = [each for each in ends if each is not None]
        return None if self.others is None or len(found) < len(ends) else found

    async def read_logs(self, lane: Lane, project: str = "") -> list[OtherLog] | None:
        """What each other subscription has settled of the lane durably, above its watermark, too; with `project` only
        those that get this project's messages. None if one of them isn't known, or has settled nothing. Raises Lost.
        """
        if self.others is None:
            return None
        found = []
        for cluster in self.others:
            if project and not self.view.takes_project(cluster, project):
                continue
            if (log := await self._read_log(cluster, lane)) is None:
                return None
            found.append(log)
        return found

    async def _read_log(self, cluster: str, lane: Lane) -> OtherLog | None:
        records = await self._store.read_records(lane.id, cluster)
        try:
            state = fold(records)
        except settle_record.UnknownVersion:
            return None
        return OtherLog(state.settled, records[-1]) if await self._recognise(cluster, lane, state) else None

    async def _recognise(self, cluster: str, lane: Lane, claim: _Claim) -> bool:
        """Whether another cluster's claim is about this very stream, and made since its subscription was reset."""
        if claim.created != lane.created or claim.high > lane.high or claim.reset < self.view.reset_of(cluster):
            return False
        generation = lane.generation
        in_generation, up_to = self._recognised.get((lane, cluster), (-1, 0))
        if in_generation != generation or claim.high > up_to:
            if not await self._is_of_this_stream(lane, claim):
                return False
            self._recognised[lane, cluster] = generation, claim.high
        return True

    async def _is_of_this_stream(self, lane: Lane, record: _Claim) -> bool:
        """Whether the record is about the stream as it is, and not as it was before it was rolled back."""
        if record.high <= lane.removal.purged or not record.high_at:
            return True
        if (record.high, record.high_at) == (lane.high, lane.high_at):
            return True  # the message itself may be deleted
        [found] = await self._store.get(lane.id, [record.high])
        # After a rollback there is another message. One that is gone was settled by all, which needs this very record,
        # or was deleted by hand.
        return found is None or found.at == record.high_at

    def discard(self, lane: Lane) -> None:
        """The lane isn't this node's any more."""
        self._recognised = {key: found for key, found in self._recognised.items() if key[0] is not lane}


def is_own_stream(lane: Lane) -> bool:
    """Whether the stream is the cluster's own, so that no other one needs its messages."""
    return lane.id.kind not in names.SHARED_KINDS
