"""SyncTopics: `Topics` for programs without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from evenlane.engine.admin.topics.topics import Topics
from evenlane.engine.base.aio.caller_loop import CallerLoop
from evenlane.engine.base.config.overrides import override

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType
    from typing import Unpack

    from evenlane.engine.admin.topics.apply import AppliedTopics
    from evenlane.engine.admin.topics.topics import Source, TopicFields
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.control.topics.status import TopicStatus

T = TypeVar("T")


class SyncTopics:
    """Shows and changes topics from a program without an event loop: `SyncTopics().set("acme", qps=100)`.

    Arguments, results and errors are those of `Topics`. Each call has a connection of its own, so that threads and
    forked processes may share one, and nothing is left to close.
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
        self._settings = override(settings, {"nats": nats, "etcd": etcd, "env": env})
        self._by = by
        self._make()  # checks the arguments now

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def get(self, project: str) -> TopicStatus:
        """As `Topics.get`."""
        return self._run(lambda topics: topics.get(project))

    def list(self) -> Sequence[TopicStatus]:
        """As `Topics.list`."""
        return self._run(lambda topics: topics.list())

    def set(
        self, project: str, *, if_revision: int | None = None, by: str | None = None, **fields: Unpack[TopicFields]
    ) -> TopicStatus:
        """As `Topics.set`."""
        return self._run(lambda topics: topics.set(project, if_revision=if_revision, by=by, **fields))

    def pause(self, project: str, *, if_revision: int | None = None, by: str | None = None) -> TopicStatus:
        """As `Topics.pause`."""
        return self._run(lambda topics: topics.pause(project, if_revision=if_revision, by=by))

    def resume(self, project: str, *, if_revision: int | None = None, by: str | None = None) -> TopicStatus:
        """As `Topics.resume`."""
        return self._run(lambda topics: topics.resume(project, if_revision=if_revision, by=by))

    def drain(self, project: str, *, if_revision: int | None = None, by: str | None = None) -> TopicStatus:
        """As `Topics.drain`."""
        return self._run(lambda topics: topics.drain(project, if_revision=if_revision, by=by))

    def delete(self, project: str, *, if_revision: int | None = None, by: str | None = None) -> TopicStatus:
        """As `Topics.delete`."""
        return self._run(lambda topics: topics.delete(project, if_revision=if_revision, by=by))

    def apply(self, topics: Source, *, dry_run: bool = False, by: str | None = None) -> AppliedTopics:
        """As `Topics.apply`."""
        return self._run(lambda client: client.apply(topics, dry_run=dry_run, by=by))

    def _make(self) -> Topics:
        return Topics(settings=self._settings, by=self._by)

    def _run(self, call: Callable[[Topics], Awaitable[T]]) -> T:
        async def carry_out() -> T:
            topics = self._make()
            topics.may_fork = True
            async with topics:
                return await call(topics)

        loop = CallerLoop("evenlane topics")
        try:
            return loop.run(carry_out())
        finally:
            loop.stop()
