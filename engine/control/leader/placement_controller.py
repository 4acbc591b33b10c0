"""Leader task: follows nodes and loads, and writes the plan that places partitions on nodes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.prefix_watch import PrefixWatch
from evenlane.engine.control.leader.gatherer import Gatherer
from evenlane.engine.control.leader.handler_differences import HandlerDifferences
from evenlane.engine.control.leader.plan_computer import PlanComputer
from evenlane.ring.coordination.ports import CoordinationError, DeleteKey, PutKey
from evenlane.ring.membership.leader import LOAD_NS, Leader
from evenlane.ring.membership.records import GenerationRecord, NodeRecord, PlanRecord, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.prefix_watch import WatchUpdate
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination, CreatedAt, KeyValue, Op
    from evenlane.ring.membership.leader import Draft
    from evenlane.ring.placement.strategy import PlacementStrategy

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PlacementTuning:
    """Limits of the controller."""

    most_ops: int = 100
    """Operations per transaction; etcd's limit is 128."""
    much: int = 4_096
    """Size above which a placement is computed in a thread, so that the event loop isn't blocked: partitions times
    nodes, or topics.
    """
    load_ns: int = LOAD_NS


class PlacementController:
    """Places partitions while `serve(fence)` runs.

    Invariants: `_sent` has the value last written under each plan key (None: deleted), `_sent_at` the revision of that
    write.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        cluster_config: ClusterConfig,
        topic_cache: TopicCache,
        strategy: tuple[str, PlacementStrategy],
        records: RecordReader,
        tuning: PlacementTuning = PlacementTuning(),
        *,
        takes: Callable[[str], bool] = lambda _project: True,
    ) -> None:
        self._tuning = tuning
        self._coordination, self._cluster = coordination, cluster
        self._strategy_name = strategy[0]
        self._records = records
        self._partitions = cluster_config.partitions
        self._computer = PlanComputer(cluster_config, topic_cache, strategy, tuning.much, takes)
        self._gatherer = Gatherer(coordination, cluster, records, self._computer, strategy[0])
        self._leader = Leader(self._partitions, load_ns=tuning.load_ns)
        self._too_many = False
        self._differences = HandlerDifferences()
        self._wake = asyncio.Event()
        self._sent: dict[str, bytes | None] = {}  # value last written under each plan key
        self._sent_at: dict[str, int] = {}  # revision of that write
        self._changed: set[str] = set()  # plans that others have changed; logged once they are rewritten
        topic_cache.on_change.append(self._on_topic_change)

    async def serve(self, fence: CreatedAt) -> None:
        """Return when another process leads. Raises CoordinationError."""
        self._leader = Leader(self._partitions, load_ns=self._tuning.load_ns)
        self._sent, self._sent_at, self._changed = {}, {}, set()
        begun = asyncio.Event()
        parts = [
            asyncio.ensure_future(part)
            for part in (self._follow_nodes(), self._follow_plans(begun), self._plan(begun, fence))
        ]
        try:
            ended, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in ended:
                part.result()
        finally:
            self._leader.deposed = True
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    # ---- input

    async def _follow_nodes(self) -> None:
        async with PrefixWatch(self._coordination, names.key(self._cluster, "nodes", "")) as items:
            async for update in items:
                now = now_ns()
                found = {name: self._read_node(item) for name, item in update.changed.items()}
                read = {name: record for name, record in found.items() if record is not None}
                self._differences.update(read, update.gone, whole=update.whole)
                gone = {*update.gone, *(name for name, item in update.changed.items() if not item.lease)}
                if update.whole:
                    self._leader.keep_only(update.changed.keys() - gone, now)
                for name, record in found.items():
                    if record is not None:
                        self._leader.node(name, record, now)
                    elif name not in gone:
                        self._leader.on_node_spoilt(name, now)
                for name in sorted(gone):
                    self._leader.on_node_gone(name, now)
                self._wake.set()

    def _read_node(self, item: KeyValue) -> NodeRecord | None:
        """Decode a node record. Returns None if it is invalid or under no lease, and the node thus can't serve."""
        if item.lease:
            return self._records.read(NodeRecord, item.key, item.value)
        self._records.pass_over(f"{item.key} has no lease")
        return None

    async def _follow_plans(self, begun: asyncio.Event) -> None:
        async with PrefixWatch(self._coordination, names.key(self._cluster, "plan", "")) as items:
            async for update in items:
                if not begun.is_set():
                    await self._begin({name: item.value for name, item in update.changed.items()})
                    self._sent = {name: item.value for name, item in update.changed.items()}
                    self._sent_at = {name: item.mod_revision for name, item in update.changed.items()}
                    begun.set()
                    continue
                if update.whole:
                    missing = self._sent.keys() - update.changed.keys()
                    for name in missing:
                        self._plan_seen(name, None, update.revision)
                    self._note_older(update)
                for name, item in update.changed.items():
                    self._plan_seen(name, item.value, item.mod_revision)
                for name in update.gone:
                    self._plan_seen(name, None, update.revision)

    async def _begin(self, plans: dict[str, bytes]) -> None:
        generation = await self._generation()
        owners = await self._owners()
        read = {name: self._read_plan(name, raw) for name, raw in plans.items()}
        good = {name: record for name, record in read.items() if record is not None}
        self._leader.begin(generation, good, owners, now_ns())
        for name in read.keys() - good.keys():
            self._leader.on_plan(name, PlanRecord(generation=0, partitions=[]), now_ns())

    async def _generation(self) -> int:
        key = names.key(self._cluster, "generation")
        found = await self._coordination.get(key)
        record = self._records.read(GenerationRecord, key, found.value) if found is not None else None
        return record.generation if record is not None else 0

    async def _owners(self) -> dict[int, str]:
        prefix = names.key(self._cluster, "owners", "")
        items = (await self._coordination.list(prefix)).items
        return self._records.owners(((item.key.removeprefix(prefix), item.value) for item in items), self._partitions)

    def _plan_seen(self, name: str, raw: bytes | None, revision: int) -> None:
        """Handle a plan in etcd: an echo of this leader's own write, or a change by another process."""
        if raw == self._sent.get(name):
            return
        record = self._read_plan(name, raw) if raw is not None else None
        newer = record is not None and record.generation > self._leader.generation
        if revision <= self._sent_at.get(name, 0) and not newer:
            return  # overwritten by now; but a node that has seen a newer generation ignores ours
        if self._leader.on_plan(name, record or PlanRecord(generation=0, partitions=[]), now_ns()):
            self._changed.add(name)
        self._wake.set()

    def _note_older(self, update: WatchUpdate) -> None:
        """Schedule a rewrite of plans that are older in this listing than this leader's writes, or missing from it.

        Either the listing was made before those writes, or etcd was rolled back since. A rewrite is correct in both
        cases.
        """
        for name, written_at in self._sent_at.items():
            item = update.changed.get(name)
            at, raw = (update.revision, None) if item is None else (item.mod_revision, item.value)
            if at <= written_at and raw != self._sent.get(name):
                self._leader.on_plan(name, None, now_ns())
                self._wake.set()

    def _read_plan(self, name: str, raw: bytes) -> PlanRecord | None:
        return self._records.read(PlanRecord, names.key(self._cluster, "plan", name), raw)

    def _on_topic_change(self, _project: str, _accepted: Accepted | None) -> None:
        self._computer.on_topic_change()
        self._leader.on_load_change(now_ns())
        self._wake.set()

    # ---- plan

    async def _plan(self, begun: asyncio.Event, fence: CreatedAt) -> None:
        await begun.wait()
        while True:
            due, gathering_due = self._leader.due(), self._leader.gathering_due()
            if due is not None and due <= now_ns():
                nodes, present = self._leader.placement_input()
                draft = self._leader.draft(await self._computer.place(nodes, present))
            elif gathering_due is not None and gathering_due <= now_ns():
                draft = await self._gatherer.draft(self._leader)
            else:
                await self._pause(gathering_due if due is None else due)
                continue
            if draft is not None and not await self._write(draft, fence):
                return

    async def _pause(self, due: int | None) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, (due - now_ns()) / _SECOND)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _write(self, draft: Draft, fence: CreatedAt) -> bool:
        """Write the draft. Returns whether this process still leads."""
        values = {
            name: encode(PlanRecord(generation=draft.generation, partitions=p)) for name, p in draft.plans.items()
        }
        self._sent |= values | dict.fromkeys(draft.gone)
        newest = GenerationRecord(generation=draft.generation, strategy=self._strategy_name)
        ops: list[Op] = [PutKey(names.key(self._cluster, "generation"), encode(newest))]
        ops += [PutKey(names.key(self._cluster, "plan", name), raw) for name, raw in values.items()]
        ops += [DeleteKey(names.key(self._cluster, "plan", name)) for name in draft.gone]
        try:
            for start in range(0, len(ops), self._tuning.most_ops):
                result = await self._coordination.txn([fence], ops[start : start + self._tuning.most_ops])
                if not result.succeeded:
                    return False
        except CoordinationError:
            self._leader.on_not_written(now_ns())
            raise
        for name in draft.plans:
            self._sent_at[name] = result.revision
        for name in draft.gone:
            self._sent.pop(name, None)
            self._sent_at.pop(name, None)
        self._leader.on_written(now_ns())
        _log.info(
            "planned", generation=draft.generation, epoch=fence.revision, nodes=len(self._leader.fit),
            changed=len(draft.plans), gone=len(draft.gone), gathers=draft.gathers,
        )  # fmt: skip
        self._warn_of_changed({*draft.plans, *draft.gone})
        self._warn_of_nodes(len(self._leader.fit))
        return True

    def _warn_of_changed(self, written: set[str]) -> None:
        """Warn of plans that another process has changed.

        Only after a fenced write: this proves that the change wasn't the plan of a new leader, whose write would have
        ended this term.
        """
        for name in sorted(written & self._changed):
            _log.warning("a plan was changed by somebody else: it is written anew", of_node=name)
        self._changed -= written

    def _warn_of_nodes(self, nodes: int) -> None:
        """Warn (P1) once there are fewer than two partitions per node."""
        too_many = 2 * nodes > self._partitions
        if too_many and not self._too_many:
            _log.warning(
                "fewer than two partitions a node: the load can't be even", partitions=self._partitions, nodes=nodes
            )
        self._too_many = too_many
