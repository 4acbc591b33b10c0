"""Topics: shows, creates and changes topics from a program, like `evenlane topics`."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict

from evenlane.engine.admin.topics.apply import AppliedTopics, apply_manifest
from evenlane.engine.admin.topics.author import current_author
from evenlane.engine.admin.topics.change import change_topic, explain_not_in_effect
from evenlane.engine.base import log_setup
from evenlane.engine.base.config.overrides import override
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.control.topics.client import TopicClient, read_config_or_defaults
from evenlane.engine.control.topics.manifest import STDIN, load_manifest, read_manifest
from evenlane.engine.errors import ConfigError, EvenlaneError, InvalidTopic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.topics.plan import Manifest
    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.ring.coordination.ports import Coordination

    Source = Mapping[str, Mapping[str, Any]] | str | os.PathLike[str]


class TopicFields(TypedDict, total=False):
    """The fields of a topic as arguments, all optional. Times in seconds; None restores the default."""

    qps: float
    groups: int | None
    burst: int | None
    borrow: bool | None
    weight: float | None
    reserve: float | None
    concurrency: int | None
    spread: int | None
    max_attempts: int | None
    backoff: Mapping[str, float] | None
    ttl: float | None
    dead_letter_expired: bool | None
    ack_wait: float | None
    max_backlog: int | None
    ordered: bool | None
    ageing: float | None
    state: str | None
    push: Mapping[str, Any] | None
    subscriptions: Mapping[str, Mapping[str, float | None] | None] | None


class Topics:
    """Shows and changes topics: `async with Topics() as topics: await topics.set("acme", qps=100)`.

    Omitted arguments come from the settings. `by` is the author of changes, for the topics' history, USER@HOST if left
    out; each change may name another. All methods raise Unreachable if a server doesn't answer, and InvalidName. A
    change waits up to 2 s for the leader; it raises EvenlaneError if the leader hasn't accepted it by then. With
    `if_revision`, it changes nothing and raises RevisionConflict unless the spec is at this revision (0: no spec).
    """

    def __init__(
        self,
        nats: str | Sequence[str] | None = None,
        etcd: str | Sequence[str] | None = None,
        env: str | None = None,
        *,
        settings: Settings | None = None,
        by: str | None = None,
    ) -> None:
        log_setup.to_stderr()
        self._settings = override(settings, {"nats": nats, "etcd": etcd, "env": env})
        self._by = current_author(by, "by")
        self.may_fork = False  # read by `open`: whether the process may fork while this is open
        self._etcd: Coordination | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin. The first call of another method connects. Raises ConfigError."""
        if self._etcd is None:
            self._etcd = connections.etcd(self._settings, may_fork=self.may_fork)

    async def close(self) -> None:
        """Close the connection. May be called twice."""
        etcd, self._etcd = self._etcd, None
        if etcd is not None:
            await etcd.close()

    async def get(self, project: str) -> TopicStatus:
        """Return a topic. Raises UnknownProject."""
        async with self._client(writes=False) as topic_client:
            return await topic_client.get(project)

    async def list(self) -> Sequence[TopicStatus]:
        """Return all topics by name."""
        async with self._client(writes=False) as topic_client:
            return await topic_client.all()

    async def set(
        self, project: str, *, if_revision: int | None = None, by: str | None = None, **fields: Unpack[TopicFields]
    ) -> TopicStatus:
        """Create a topic, or change it: only the given fields change. The arguments are a topic's
        [fields](topics.md#fields), with times in seconds; None restores a field's default. A new topic needs `qps`.

        Raises InvalidTopic.
        """
        if not fields:
            raise InvalidTopic(f"topic {project}: nothing to set: name at least one field, such as qps=100")
        return await self._change(project, dict(fields), "Topics.set", if_revision, by)

    async def pause(self, project: str, *, if_revision: int | None = None, by: str | None = None) -> TopicStatus:
        """Stop handling a project's messages; puts are still accepted, and wait. Raises UnknownProject."""
        return await self._change(project, {"state": "paused"}, "Topics.pause", if_revision, by, known=True)

    async def resume(self, project: str, *, if_revision: int | None = None, by: str | None = None) -> TopicStatus:
        """End a pause or a drain, or restore a deleted topic. Raises UnknownProject."""
        return await self._change(project, {"state": "active"}, "Topics.resume", if_revision, by, known=True)

    async def drain(self, project: str, *, if_revision: int | None = None, by: str | None = None) -> TopicStatus:
        """Refuse puts from now on; waiting messages are still handled, even those of a deleted topic. Raises
        UnknownProject.
        """
        return await self._change(project, {"state": "draining"}, "Topics.drain", if_revision, by, known=True)

    async def delete(self, project: str, *, if_revision: int | None = None, by: str | None = None) -> TopicStatus:
        """Delete a topic: puts are refused, and waiting messages are kept and paused. The topic is removed when none
        are left. Raises UnknownProject.
        """
        _check_revision(if_revision)
        async with self._client(writes=True, by=by) as topic_client:
            status = await topic_client.delete(project, if_revision=if_revision, via="Topics.delete")
        return self._check(status)

    async def apply(self, topics: Source, *, dry_run: bool = False, by: str | None = None) -> AppliedTopics:
        """Create or replace these topics; others stay as they are. `topics` is `{"acme": {"qps": 100, ...}, ...}`, or
        the path of a file with that in JSON or TOML.

        Raises InvalidTopic if a topic is wrong, and nothing was written; ConfigError for the file; EvenlaneError if not
        all were written and accepted, such as a topic that somebody changes meanwhile.
        """
        described = _describe(topics)
        with connections.translate_errors():
            etcd, author = self._opened(), self._author(by)
            cluster_config = await self._read_config(etcd, writes=not dry_run)
            return await apply_manifest(etcd, self._settings, cluster_config, described, by=author, dry_run=dry_run)

    async def _change(
        self,
        project: str,
        changes: Mapping[str, object],
        via: str,
        if_revision: int | None,
        by: str | None,
        *,
        known: bool = False,
    ) -> TopicStatus:
        _check_revision(if_revision)
        async with self._client(writes=True, by=by) as topic_client:
            changed = await change_topic(
                topic_client, self._settings, project, changes, via=via, if_revision=if_revision, known=known
            )
        return self._check(changed.status)

    def _check(self, status: TopicStatus) -> TopicStatus:
        """Return a topic whose change is in effect."""
        why = explain_not_in_effect(status, self._settings.env)
        if why is not None:
            raise EvenlaneError(why) if status.problem is None else InvalidTopic(why)
        return status

    @asynccontextmanager
    async def _client(self, *, writes: bool, by: str | None = None) -> AsyncIterator[TopicClient]:
        with connections.translate_errors():
            etcd, author = self._opened(), self._author(by)
            cluster_config = await self._read_config(etcd, writes=writes)
            yield TopicClient(etcd, self._settings.env, cluster_config, author)

    def _author(self, by: str | None) -> str:
        return self._by if by is None else current_author(by, "by")

    def _opened(self) -> Coordination:
        if self._etcd is None:
            raise ConfigError("these topics are not open: call them inside `async with Topics(...) as topics`")
        return self._etcd

    async def _read_config(self, etcd: Coordination, *, writes: bool) -> ClusterConfig:
        """Return the cluster's config. Only a change creates a missing environment."""
        env = self._settings.env
        if not writes:
            return await read_config_or_defaults(etcd, env)
        return await agree_cluster_config(etcd, env, connections.config_known_so_far(self._settings))


def _describe(topics: Source) -> Manifest:
    """Read the given topics, or those of a file. Raises ConfigError."""
    if not isinstance(topics, str | os.PathLike):
        return read_manifest(topics)
    path = Path(topics)
    return load_manifest(path.absolute() if path == STDIN else path)  # `-` is stdin for the command line alone


def _check_revision(given: object) -> None:
    """Raise ConfigError unless a revision, or none, is given."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return
    raise ConfigError(f"if_revision must be the revision of a topic's status, or 0 for none, not {given!r}")
