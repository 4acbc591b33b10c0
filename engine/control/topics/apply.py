"""Applies a plan of many topics, each only if its spec hasn't changed since the plan was made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.control.topics import wait
from evenlane.engine.control.topics.plan import DUE, plan_changes
from evenlane.engine.control.topics.spec_writer import AT_ONCE, SpecChange, SpecWriter
from evenlane.engine.control.topics.status import explain_not_drained
from evenlane.engine.errors import EvenlaneError, InvalidTopic, Unreachable
from evenlane.ring.coordination.ports import CoordinationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.topics.plan import Manifest, PlanRow
    from evenlane.ring.coordination.ports import Coordination, KeyValue

VIA = "topics apply"
_MOST_BYTES = 300_000  # of specs per transaction: each may be written four times, and etcd takes 1.5 MiB
_IN_FLIGHT = 4  # concurrent transactions
_TRIES = 20  # when the leader changes, or a topic is accepted meanwhile


class ApplyOutcome(NamedTuple):
    """Result of applying a plan. `refused` maps a project to the reason why it wasn't written; `waiting` are the
    projects that the leader hasn't accepted; `broken` says why the plan wasn't completed.
    """

    written: list[str]
    refused: dict[str, str]
    waiting: list[str]
    broken: str | None


async def _unknown(_project: str) -> int:
    raise EvenlaneError("it can't be read here")


class ApplyPlan:
    """Plans and applies changes of topics. `by` is the author, for the topics' history. `waiting(project)` counts the
    project's backlog, including messages being handled, and may raise EvenlaneError.

    Invariant: `_pending` is the part of `_written` that the leader must accept.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        cluster_config: ClusterConfig,
        by: str | None = None,
        waiting: Callable[[str], Awaitable[int]] = _unknown,
        *,
        timeout_s: float = wait.WAIT_S,
    ) -> None:
        self._waiting, self._timeout_s = waiting, timeout_s
        self._silent: Unreachable | None = None  # a retry per topic would take seconds each
        self._coordination, self._env, self._cluster_config = coordination, env, cluster_config
        self._spec_writer = SpecWriter(coordination, env, cluster_config, by)
        self._written: dict[str, int] = {}  # project -> revision
        self._pending: dict[str, int] = {}  # the part of `_written` that the leader must accept
        self._refused: dict[str, str] = {}

    async def plan(self, described: Manifest) -> list[PlanRow]:
        """Return the plan's rows. An ordered topic that would move keys to other groups is held while messages wait.
        Raises CoordinationError.
        """
        specs, accepted = await asyncio.gather(self._list_under("topics"), self._list_under("accepted"))
        return [
            await self._hold_undrained(row) for row in plan_changes(described, specs, accepted, self._cluster_config)
        ]

    async def carry_out(
        self, rows: Iterable[PlanRow], on_progress: Callable[[int, int], None] = lambda _written, _waiting: None
    ) -> ApplyOutcome:
        """Write new and changed topics. `on_progress` is called with the numbers of topics written and not yet
        accepted.
        """
        broken, planned = None, list(rows)
        self._refused |= {row.project: row.problem or "" for row in planned if row.action == "held"}
        try:
            await self._write_all([row for row in planned if row.action in DUE], on_progress)
            waiting = await wait.wait_until_accepted(
                self._coordination,
                self._env,
                self._pending,
                lambda left: on_progress(len(self._written), left),
                timeout_s=self._timeout_s,
            )
        except CoordinationError as error:
            broken, waiting = str(error), set(self._pending)
        return ApplyOutcome(list(self._written), self._refused, sorted(waiting), broken)

    async def _write_all(self, rows: list[PlanRow], on_progress: Callable[[int, int], None]) -> None:
        parts = _parts(SpecChange(row.project, row.raw, row.spec, row.accepted) for row in rows)

        async def write() -> None:
            for part in parts:  # all writers share this iterator
                await self._write(part)
                on_progress(len(self._written), len(self._pending))

        writers = [asyncio.ensure_future(write()) for _ in range(_IN_FLIGHT)]
        try:
            await asyncio.gather(*writers)
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)

    async def _write(self, part: list[SpecChange]) -> None:
        for _ in range(_TRIES):
            if not part:
                return
            written = await self._spec_writer.write(part, VIA)
            if written is not None:
                revisions = {each.project: written.revision for each in part}
                self._written |= revisions
                self._pending |= {} if written.in_effect else revisions
                return
            part = [still for each in part if (still := await self._rebuild(each)) is not None]
        self._refused |= {each.project: "others keep changing it at the same time" for each in part}

    async def _rebuild(self, each: SpecChange) -> SpecChange | None:
        """Update the change after a conflict. Returns None if it may not be written any more."""
        spec, accepted = await asyncio.gather(self._get("topics", each.project), self._get("accepted", each.project))
        planned, now = (0 if found is None else found.mod_revision for found in (each.spec, spec))
        if now != planned:
            self._refused[each.project] = (
                f"somebody has changed it since the plan was made (revision {planned}, now {now}): it was left"
                " unchanged"
            )
            return None
        still = each._replace(accepted=accepted)
        try:
            problem = await self._explain_held(each.project) if self._spec_writer.would_move_keys(still) else None
        except InvalidTopic as error:
            problem = str(error)
        if problem is not None:
            self._refused[each.project] = problem
            return None
        return still

    async def _hold_undrained(self, row: PlanRow) -> PlanRow:
        problem = await self._explain_held(row.project) if row.moves_keys else None
        return row if problem is None else row._replace(action="held", problem=problem)

    async def _explain_held(self, project: str) -> str | None:
        """Return why this ordered topic may not get other groups now, None if it may."""
        try:
            waiting = await self._count(project)
        except EvenlaneError as why:
            return f"topic {project} is ordered and gets other groups only when its backlog is known to be empty: {why}"
        return explain_not_drained(project, waiting) if waiting else None

    async def _count(self, project: str) -> int:
        if self._silent is not None:
            raise self._silent
        try:
            return await self._waiting(project)
        except Unreachable as error:
            self._silent = error
            raise

    async def _get(self, kind: str, project: str) -> KeyValue | None:
        return await self._coordination.get(names.key(self._env, kind, project))

    async def _list_under(self, kind: str) -> dict[str, KeyValue]:
        prefix = names.key(self._env, kind, "")
        return {item.key.removeprefix(prefix): item for item in (await self._coordination.list(prefix)).items}


def _parts(intended: Iterable[SpecChange]) -> Iterator[list[SpecChange]]:
    part: list[SpecChange] = []
    size = 0
    for each in intended:
        length = len(each.raw or b"")
        if part and (len(part) == AT_ONCE or size + length > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    if part:
        yield part
