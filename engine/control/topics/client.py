"""Client for topics: writes a spec to etcd and reports whether it is in effect."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig, agree_cluster_config
from evenlane.engine.control.topics import wait
from evenlane.engine.control.topics.history import ChangeHistory, author_of, read_history
from evenlane.engine.control.topics.spec_writer import SpecChange, SpecWriter
from evenlane.engine.control.topics.status import TopicStatus, explain_effect, make_checked, read_status, try_decode
from evenlane.engine.errors import (
    EvenlaneError,
    InvalidTopic,
    RevisionConflict,
    TopicDraining,
    UnknownProject,
    hint,
)
from evenlane.quota.topics.strict_json import write_object
from evenlane.quota.topics.topic import TopicSpec, complete, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination, KeyValue

_TRIES = 20  # while others write the same topic


class _Made(NamedTuple):
    """A spec to write (None: delete). `replaces` is the problem of the present spec, if that is discarded entirely."""

    raw: bytes | None
    replaces: str | None = None


class TopicClient:
    """Reads and changes topics. Each call may raise CoordinationError, InvalidName for an invalid name, and
    InvalidTopic for an invalid topic.

    `by` is the author of changes, for the topics' history.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        cluster_config: ClusterConfig,
        by: str | None = None,
        *,
        timeout_s: float = wait.WAIT_S,
    ) -> None:
        self._coordination, self._env, self._cluster_config, self._timeout_s = (
            coordination,
            env,
            cluster_config,
            timeout_s,
        )
        self._spec_writer = SpecWriter(coordination, env, cluster_config, by)

    @property
    def priorities(self) -> Sequence[str]:
        """Priorities of the environment."""
        return self._cluster_config.priorities

    async def get(self, project: str) -> TopicStatus:
        """Return one topic's status. Raises UnknownProject."""
        names.check_project(project)
        spec, accepted = await self._read(project)
        if spec is None and accepted is None:
            raise self._unknown(project)
        return read_status(project, spec, accepted, self._cluster_config)

    async def all(self) -> list[TopicStatus]:
        """Return all topics' status by name."""
        specs, accepted = await asyncio.gather(self._list_under("topics"), self._list_under("accepted"))
        return [
            read_status(project, specs.get(project), accepted.get(project), self._cluster_config)
            for project in sorted({*specs, *accepted})
        ]

    async def page(self, after: str, most: int) -> tuple[list[TopicStatus], bool]:
        """Return the status of the first `most` topics whose names come after `after`, and whether there are more."""
        specs, accepted = await asyncio.gather(self._list_under("topics"), self._list_under("accepted"))
        found = [project for project in sorted({*specs, *accepted}) if project > after]
        statuses = [
            read_status(project, specs.get(project), accepted.get(project), self._cluster_config)
            for project in found[:most]
        ]
        return statuses, len(found) > most

    async def history(self, project: str) -> ChangeHistory:
        """Return the latest accepted changes. Raises UnknownProject."""
        names.check_project(project)
        found = (await self._coordination.list(names.key(self._env, "history", project, ""))).items
        if not found and await self._read(project) == (None, None):
            raise self._unknown(project)
        return read_history(self._env, project, found)

    async def change(
        self,
        project: str,
        changes: Mapping[str, object],
        *,
        known: bool = False,
        whole: bool = False,
        if_revision: int | None = None,
        via: str = "",
    ) -> TopicStatus:
        """Change the named fields (None: back to the default) and wait for the leader, at most `timeout_s` seconds.

        With `whole`, the fields are the whole new spec: a spec that is there is replaced, however corrupted it is.
        Otherwise the changes apply to the present spec, or to the topic in effect if the present spec was rejected. If
        the topic must be `known` and isn't, raises UnknownProject; a deleted topic is known, and returns as it was last
        accepted.
        Raises RevisionConflict if the spec isn't at `if_revision` (0: there is none).
        """
        names.check_project(project)
        return await self._carry_out(
            project,
            lambda spec, accepted: self._change(project, changes, spec, accepted, known=known, whole=whole),
            if_revision,
            via,
        )

    async def delete(self, project: str, *, if_revision: int | None = None, via: str = "") -> TopicStatus:
        """Delete the spec: its topic is paused and kept, or continues draining. Raises UnknownProject if there is no
        topic, TopicDraining if it was already deleted.
        """
        names.check_project(project)

        def none(spec: KeyValue | None, accepted: KeyValue | None) -> _Made:
            if spec is None:
                raise self._unknown(project) if accepted is None else self._explain_gone(project, accepted)
            return _Made(None)

        return await self._carry_out(project, none, if_revision, via)

    async def is_unordered(self, project: str) -> bool:
        """Whether the project has a topic in effect that isn't ordered."""
        before = try_decode((await self._read(project))[1])
        return before is not None and not before.topic.ordered

    async def would_move_keys(
        self, project: str, changes: Mapping[str, object], *, known: bool = False, whole: bool = False
    ) -> bool:
        """Whether this change of an ordered topic sends keys to groups other than those where their messages may wait.
        This happens only on return from draining (docs/explanation/delivery-guarantees.md).
        """
        spec, accepted = await self._read(project)
        before = try_decode(accepted)
        if before is None or not before.topic.ordered:
            return False
        raw = self._change(project, changes, spec, accepted, known=known, whole=whole).raw
        return self._spec_writer.would_move_keys(SpecChange(project, raw, spec, accepted))

    async def _carry_out(
        self,
        project: str,
        make: Callable[[KeyValue | None, KeyValue | None], _Made],
        if_revision: int | None,
        via: str,
    ) -> TopicStatus:
        """Write the result of `make`, called with the present spec and accepted topic; retry after conflicts."""
        for _ in range(_TRIES):
            spec, accepted = await self._read(project)
            if if_revision not in (None, _revision(spec)):
                raise await self._explain_revision(project, spec, if_revision)
            raw, replaces = make(spec, accepted)
            written = await self._spec_writer.write([SpecChange(project, raw, spec, accepted)], via)
            if written is not None:
                if not written.in_effect and (raw is not None or accepted is not None):
                    expected = {project: 0 if raw is None else written.revision}
                    await wait.wait_until_accepted(self._coordination, self._env, expected, timeout_s=self._timeout_s)
                return replace(
                    read_status(project, *await self._read(project), self._cluster_config), replaced=replaces
                )
        raise EvenlaneError(f"topic {project}: others keep changing it at the same time: try again")

    def _change(
        self,
        project: str,
        changes: Mapping[str, object],
        spec: KeyValue | None,
        accepted: KeyValue | None,
        *,
        known: bool,
        whole: bool = False,
    ) -> _Made:
        if whole:
            return _Made(make_checked(project, partial(merge, None, changes)))
        old, replaces = None if spec is None else spec.value, None
        before = try_decode(accepted)
        if known and old is None:
            if before is None:
                raise self._unknown(project)
            if changes.get("state") == "paused":
                raise InvalidTopic(f"topic {project} was deleted and is paused: {_explain_revival(project, self._env)}")
            old = self._as_spec(before)
        elif before is not None and not before.deleted:
            replaces = read_status(project, spec, accepted, self._cluster_config).problem
            old = old if replaces is None else self._as_spec(before)
        return _Made(make_checked(project, partial(merge, old, changes)), replaces)

    def _as_spec(self, before: Accepted) -> bytes:
        """Convert an accepted topic to a spec that names only fields that differ from their defaults."""
        usual = msgspec.to_builtins(complete(TopicSpec({"qps": before.topic.qps}), self._cluster_config))
        fields = msgspec.to_builtins(before.topic)
        return write_object({name: fields[name] for name in fields if name == "qps" or fields[name] != usual[name]})

    async def _explain_revision(self, project: str, spec: KeyValue | None, expected: int | None) -> RevisionConflict:
        author = author_of(await self._coordination.get(names.key(self._env, "authors", project)), _revision(spec))
        if spec is None:
            state = "there is no spec for it"
        elif author is None:
            state = f"its spec is at revision {spec.mod_revision}, whose author is unknown"
        else:
            state = f"its spec is at revision {spec.mod_revision}, by {author.by}"
        return RevisionConflict(
            f"topic {project} is no longer at revision {expected}: {state}: check it with"
            f" {hint(f'topics get {project}', self._env)} and decide again"
        )

    def _explain_gone(self, project: str, accepted: KeyValue) -> TopicDraining:
        before = try_decode(accepted)
        if before is None:
            why = "its accepted value can't be read"
        elif before.deleted:
            why = explain_effect(project, before, self._env)
        else:
            why = "the leader has not yet accepted that"
        return TopicDraining(f"topic {project} was already deleted: {why}")

    async def _read(self, project: str) -> tuple[KeyValue | None, KeyValue | None]:
        spec, accepted = await asyncio.gather(
            self._coordination.get(names.key(self._env, "topics", project)),
            self._coordination.get(names.key(self._env, "accepted", project)),
        )
        return spec, accepted

    async def _list_under(self, kind: str) -> dict[str, KeyValue]:
        prefix = names.key(self._env, kind, "")
        items: Iterable[KeyValue] = (await self._coordination.list(prefix)).items
        return {item.key.removeprefix(prefix): item for item in items}

    def _unknown(self, project: str) -> UnknownProject:
        return UnknownProject(
            f"project {project!r} has no topic in environment {self._env!r}: "
            f"{hint(f'topics set {project} --qps 100', self._env)} creates one"
        )


async def read_config_or_defaults(coordination: Coordination, env: str) -> ClusterConfig:
    """Return the environment's config, or the defaults if there is none yet, without writing them."""
    if await coordination.get(names.key(env, "settings")) is None:
        return ClusterConfig()
    return await agree_cluster_config(coordination, env, {})


def _revision(spec: KeyValue | None) -> int:
    return 0 if spec is None else spec.mod_revision


def _explain_revival(project: str, env: str) -> str:
    return (
        f"{hint(f'topics resume {project}', env)} restores it as it was, "
        f"{hint(f'topics drain {project}', env)} has its backlog handled"
    )
