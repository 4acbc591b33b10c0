"""Leader task: decides how many nodes there should be, records it in etcd, and may ask for them itself (P10)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.scaling.configured import bounds_of, policy_of
from evenlane.engine.control.scaling.decision import ScalingState, decide, note_present
from evenlane.engine.control.scaling.policy import Observation
from evenlane.engine.control.scaling.record import ScalingRecord, find_conflict, with_state
from evenlane.engine.control.scaling.target import Scale, ScaleError
from evenlane.engine.control.scaling.validity import check_records
from evenlane.ring.coordination.ports import CoordinationError, PutKey
from evenlane.ring.membership.records import NodeRecord, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlane.engine.base.config.scaling import ScalingSettings
    from evenlane.engine.control.scaling.decision import Decision
    from evenlane.engine.control.scaling.target import ReplicaTarget
    from evenlane.ring.coordination.ports import Coordination, CreatedAt

_log = structlog.get_logger(__name__)


class ScalingController:
    """Looks at the nodes every `scaling_interval` seconds while `serve(fence)` runs.

    With a `target` it changes the number of replicas; without one it only records the number, and something else reads
    it. An attempt to change it is recorded before, under the leader's fence: a previous leader changes nothing, and the
    next one finds out whether the attempt has succeeded, and so when the rest began. A leader that leaves changes no
    replicas: if all nodes end, it would start others. `clock` returns unix seconds.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        holder: str,
        partitions: int,
        settings: ScalingSettings,
        records: RecordReader,
        target: ReplicaTarget | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._coordination, self._cluster, self._holder, self._partitions = coordination, cluster, holder, partitions
        self._settings, self._records, self._target, self._clock = settings, records, target, clock
        self._node_records = RecordReader(cluster, lambda _reason: None)  # the placement names invalid ones
        self._policy, self._bounds = policy_of(settings), bounds_of(settings)
        self._problem = ""  # the last one that was logged
        self._invalid: dict[str, str] = {}  # node -> reason; they were logged

    async def serve(self, fence: CreatedAt) -> None:
        """Return when another process leads. Raises CoordinationError."""
        while True:
            if not await self.look(fence):
                return
            await asyncio.sleep(self._settings.scaling_interval)

    async def look(self, fence: CreatedAt) -> bool:
        """Look once. Returns whether this process still leads. Raises CoordinationError."""
        nodes, invalid = check_records(await self._read_nodes())
        self._note_invalid(invalid)
        if self._target is not None and self._holder in nodes and nodes[self._holder].leaving:
            return True
        before = await self._read_record()
        state = before.state if before is not None else ScalingState()
        record = ScalingRecord(
            mode=self._settings.scaling, by=self._holder, at=round(self._clock(), 3),
            policy=self._settings.scaling_policy,
        )  # fmt: skip
        if before is not None:
            record = with_state(replace(record, desired=before.desired, replicas=before.replicas), state)
        try:
            fit = {name: node for name, node in nodes.items() if node.is_fit}
            scale = await self._read_scale(nodes, state, len(fit))
            state = note_present(state, scale.replicas, record.at)
            seen = Observation(fit, scale.replicas, self._partitions)
            decision = decide(self._policy, self._bounds, seen, state, record.at)
            return await self._carry_out(with_state(record, state), scale, decision, fence)
        except ScaleError as error:
            self._note_problem(str(error))
            return await self._write(replace(record, error=str(error)), fence)
        except CoordinationError:
            raise
        except Exception:  # noqa: BLE001 - a defect here must not end the leader's other work
            _log.exception("the number of nodes could not be decided")
            return True

    async def _carry_out(self, record: ScalingRecord, scale: Scale, decision: Decision, fence: CreatedAt) -> bool:
        is_change = decision.replicas != scale.replicas
        decided = replace(record, desired=decision.replicas, replicas=scale.replicas, why=decision.why)
        if is_change and self._target is not None:
            if not await self._write(replace(decided, attempted_at=record.at), fence):
                return False
            try:
                await self._target.change(decision.replicas, scale.version)
            except ScaleError as error:  # nothing has changed, so the next look decides again, without a rest
                self._note_problem(str(error))
                failed = replace(record, desired=scale.replicas, replicas=scale.replicas, error=str(error))
                return await self._write(failed, fence)
        if not await self._write(with_state(decided, decision.state), fence):
            return False
        self._note_problem("")
        if is_change:
            _log.info(
                "scaled", before=scale.replicas, after=decision.replicas, mode=record.mode, reason=decision.why
            )  # fmt: skip
        return True

    async def _read_scale(self, nodes: Mapping[str, NodeRecord], state: ScalingState, living: int) -> Scale:
        """Return the number that was asked for: without a target, the one of the last decision, and never 0. Raises
        ScaleError, also if the nodes don't agree on what carries it out.
        """
        if conflict := find_conflict(nodes):
            raise ScaleError(conflict)
        if self._target is not None:
            return await self._target.read()
        return Scale(state.replicas or max(1, living), "")

    async def _read_nodes(self) -> dict[str, NodeRecord]:
        prefix = names.key(self._cluster, "nodes", "")
        listed = (await self._coordination.list(prefix)).items
        found = {
            item.key.removeprefix(prefix): self._node_records.read(NodeRecord, item.key, item.value)
            for item in listed
            if item.lease
        }
        return {name: record for name, record in found.items() if record is not None}

    async def _read_record(self) -> ScalingRecord | None:
        key = names.key(self._cluster, "scaling")
        found = await self._coordination.get(key)
        return None if found is None else self._records.read(ScalingRecord, key, found.value)

    async def _write(self, record: ScalingRecord, fence: CreatedAt) -> bool:
        put = PutKey(names.key(self._cluster, "scaling"), encode(record))
        return (await self._coordination.txn([fence], [put])).succeeded

    def _note_invalid(self, invalid: dict[str, str]) -> None:
        """Log each node whose record doesn't count once, until its record counts or is wrong in another way."""
        for node, reason in sorted(invalid.items()):
            if self._invalid.get(node) != reason:
                _log.warning("a node doesn't count for scaling", node=node, reason=reason)
        self._invalid = invalid

    def _note_problem(self, problem: str) -> None:
        """Log a problem once, until there is another one or none."""
        if problem and problem != self._problem:
            _log.warning("the number of nodes can't be changed", mode=self._settings.scaling, reason=problem)
        self._problem = problem
