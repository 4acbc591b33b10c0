"""Cache of an environment's accepted topics, by which nodes and producers work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.cluster.keys_watch import KeysWatch
from evenlane.engine.cluster.topics.lost_topics import LostTopics
from evenlane.engine.core.message.error_text import refusal, shorten
from evenlane.engine.errors import EvenlaneError, InvalidName, UnknownProject
from evenlane.quota.topics.resolve import resolve
from evenlane.quota.topics.topic import Accepted, TopicError, decode_accepted
from evenlane.ring.coordination.ports import Denied, Listing
from evenlane.ring.coordination.revisions import KeyRevisions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.base.config.settings import Settings
    from evenlane.quota.topics.topic import Topic
    from evenlane.ring.coordination.ports import Coordination, Event, KeyValue, Watch

    OnChange = Callable[[str, Accepted | None], None]

_log = structlog.get_logger(__name__)

_MOST_NAMED = 20  # per log entry


async def start_topics(coordination: Coordination, settings: Settings) -> TopicCache:
    """Return the started cache of a producer. Raises CoordinationError, or EvenlaneError if this user may not read the
    topics.
    """
    topics = TopicCache(coordination, settings.env, settings.projects)
    try:
        await topics.start()
    except Denied as error:
        user = settings.etcd_user or "of the client certificate"
        denied = f"{error}: the user {user} may not read"
        if settings.projects is None:
            raise EvenlaneError(
                f"{denied} all topics of environment {settings.env!r}: set projects to those of this user"
            ) from error
        raise EvenlaneError(
            f"{denied} the topics of {', '.join(settings.projects)}: set projects to those of this user"
        ) from error
    return topics


class TopicCache:
    """Accepted topics by project. Call `start` before any lookup, and `close` at the end. With `projects`, only the
    topics of these are read. With `subscription`, each topic has the quota of this one; all others are as published.

    Each callback in `on_change` is called on the event loop with the project and its new topic (None: deleted) for each
    change, including those of the first listing. An invalid value under `accepted/` changes nothing; `refused` counts
    them. Topics that are missing because of an etcd rollback stay in effect; `on_lost` is called with them when they
    change, once per listing. `KeyRevisions` defines which rollbacks are detected.

    Invariant: each lost project is in `_topics`.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        projects: Sequence[str] | None = None,
        *,
        subscription: str | None = None,
    ) -> None:
        self.on_change: list[OnChange] = []
        self.on_lost: Callable[[LostTopics], None] = lambda _lost: None
        self.refused = 0
        self._coordination = coordination
        self._env, self._subscription = env, subscription
        self._prefix, self._projects = names.key(env, "accepted", ""), projects
        self._topics: dict[str, Accepted] = {}
        self._bad: dict[str, int] = {}  # project -> mod-revision, so that each bad value is counted and logged once
        self._revisions = KeyRevisions()
        self._lost = LostTopics()
        self._watch: Watch | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start following topics; return when all are known. Raises CoordinationError if etcd doesn't answer, Denied if
        this user may not read them.
        """
        if self._watch is not None:
            raise RuntimeError("the topics are already being watched")
        # A watch would wait silently for etcd, and for a permission. The prefix alone is the key of no topic.
        for project in ("",) if self._projects is None else self._projects:
            await self._coordination.get(f"{self._prefix}{project}")
        self._watch = self._make_watch()
        try:
            self._take(await anext(self._watch))
        except BaseException:
            await self.close()
            raise
        self._following = asyncio.create_task(self._follow(self._watch), name="topics")

    def _make_watch(self) -> Watch:
        if self._projects is None:
            return self._coordination.watch(self._prefix)
        return KeysWatch(self._coordination, [f"{self._prefix}{project}" for project in self._projects])

    def get(self, project: str) -> Accepted | None:
        return self._topics.get(project)

    def all(self) -> dict[str, Accepted]:
        """Return a copy of the topics by project."""
        return dict(self._topics)

    @property
    def lost(self) -> frozenset[str]:
        """Projects whose topics etcd has lost in a rollback. They stay in effect here."""
        return self._lost.all()

    def find_lost(self, project: str) -> Topic | None:
        """Return the project's topic if etcd has lost it."""
        return self._topics[project].topic if project in self._lost else None

    async def wait_for(self, project: str, timeout: float) -> Accepted:  # noqa: ASYNC109 - part of the sentence
        """Return the project's topic, waiting for it if needed. Raises UnknownProject after `timeout` seconds."""
        known = self.get(project)
        if known is not None:
            return known
        appeared: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()

        def look(changed: str, accepted: Accepted | None) -> None:
            if changed == project and accepted is not None and not appeared.done():
                appeared.set_result(accepted)

        self.on_change.append(look)
        try:
            async with asyncio.timeout(timeout):
                return await appeared
        except TimeoutError:
            raise UnknownProject.of(project, self._env, f", nor got one within {timeout:g} s") from None
        finally:
            self.on_change.remove(look)

    async def close(self) -> None:
        """Stop following topics. The known ones stay. May be called twice."""
        if self._watch is not None:
            await self._watch.aclose()
        if self._following is not None:
            await self._following

    async def _follow(self, watch: Watch) -> None:
        async for update in watch:
            self._take(update)

    def _take(self, update: Listing | Event) -> None:
        gone_back = self._revisions.observe(update)
        if isinstance(update, Listing):
            changes = self._list(update, gone_back=gone_back)
        elif update.kind == "put":
            changes = self._put(update.item)
        else:
            self._bad.pop(self._project(update.item), None)
            changes = self._set(self._project(update.item), None)
        if changes:
            self.on_lost(self._lost)

    # Each of these returns whether the set of lost topics changed.

    def _list(self, update: Listing, *, gone_back: bool) -> bool:
        """Apply a full listing. A missing topic was deleted; after an etcd rollback it is lost, and stays in effect."""
        listed = {self._project(item) for item in update.items}
        missing = {project for project in self._topics.keys() - listed if project not in self._lost}
        changes = [self._lose(missing)] if gone_back else [self._set(project, None) for project in missing]
        changes += [self._put(item) for item in update.items]
        return any(changes)

    def _lose(self, missing: set[str]) -> bool:
        if missing:
            some = sorted(map(shorten, missing))[:_MOST_NAMED]
            _log.warning("etcd has lost topics: what is known of them stays in force", projects=len(missing), some=some)
            self._lost.add(missing)
        return bool(missing)

    def _put(self, item: KeyValue) -> bool:
        project = self._project(item)
        try:
            names.check_project(project)
            accepted = resolve(decode_accepted(item.value), self._subscription)
        except (TopicError, InvalidName) as error:
            if self._bad.get(project) != item.mod_revision:
                self._bad[project] = item.mod_revision
                self.refused += 1
                _log.warning(
                    "an accepted topic is not valid and is passed over", project=shorten(project), reason=refusal(error)
                )
            return False
        self._bad.pop(project, None)
        return self._set(project, accepted)

    def _set(self, project: str, accepted: Accepted | None) -> bool:
        was_lost = self._lost.discard(project)
        if self._topics.get(project) != accepted:
            self._change(project, accepted)
        return was_lost

    def _change(self, project: str, accepted: Accepted | None) -> None:
        if accepted is None:
            del self._topics[project]
        else:
            self._topics[project] = accepted
        for notify in tuple(self.on_change):
            try:
                notify(project, accepted)
            except Exception:  # noqa: BLE001 - one listener's defect must not stop the topics of all
                _log.exception("a listener failed at a change of a topic", project=project)

    def _project(self, item: KeyValue) -> str:
        return item.key.removeprefix(self._prefix)
