"""Client for replays of what was handled: finds a stretch of it, and puts copies in front of one subscription again.

A copy's id names the message that it is a copy of, so that the store keeps it once within the duplicate window, however
often the replay is repeated.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from evenlane.engine.admin.replays.connect import connect
from evenlane.engine.admin.replays.replay import IN_FLIGHT, Replay
from evenlane.engine.admin.replays.selection import select
from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import check_takes_project
from evenlane.engine.core.message.handled import read_handled, replay_handled
from evenlane.engine.core.queue.subscriber import UNNAMED, Subscriber
from evenlane.engine.errors import EvenlaneError, TopicDraining, UnknownProject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from evenlane.engine.admin.replays.replay import ReplayProgress, ReplayResult
    from evenlane.engine.admin.replays.selection import Selection, Stretch
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.subscriptions.registry import Subscription
    from evenlane.engine.core.message.copies import Copy
    from evenlane.engine.core.message.handled import HandledMessage
    from evenlane.engine.core.ports import Store
    from evenlane.engine.producer.pipeline.router import Topics
    from evenlane.quota.topics.topic import Accepted

_READ_AT_ONCE = 256  # messages,
_READ_BYTES = 32 << 20  # and bytes, if each were as large as a message may be: the server cuts a connection at 64 MB


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[HandledClient]:
    """Connect as configured. Raises Unreachable, ConfigError; EvenlaneError if there is no such environment, and for a
    subscription that doesn't exist or isn't active.
    """
    async with connect(settings, "evenlane replay") as (store, topics, cluster_config, entry):
        if entry is not None and entry.state != "active":
            raise EvenlaneError(f"subscription {settings.subscription!r} isn't active: its state is {entry.state}")
        yield HandledClient(
            store, settings.cluster, topics, cluster_config, entry=entry, timeout_s=settings.duplicate_window
        )


class HandledClient:
    """Client for one cluster. `entry` is its subscription; None: the unnamed one. `timeout_s` limits the tries of one
    put; it is the store's duplicate window. Each call may raise Lost, Refused.
    """

    def __init__(
        self,
        store: Store,
        cluster: str,
        topics: Topics,
        cluster_config: ClusterConfig,
        *,
        entry: Subscription | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._store, self._cluster, self._topics, self._cluster_config = store, cluster, topics, cluster_config
        self._entry, self._env, self._timeout_s = entry, names.env_of(cluster), timeout_s

    async def select(self, project: str, stretch: Stretch) -> Selection:
        """Find the messages of a stretch. Raises UnknownProject, TopicDraining; EvenlaneError if the subscription
        doesn't get messages of this project.
        """
        self._find_open_topic(project)
        if self._entry is not None:
            check_takes_project(self._entry.filter, names.subscription_of(self._cluster), project)
        subscriber = UNNAMED if self._entry is None else Subscriber(is_named=True, chosen=self._entry.filter)
        return await select(self._store, self._cluster_config, project, stretch, subscriber)

    async def replay(
        self,
        project: str,
        selection: Selection,
        *,
        rate: float | None = None,
        on_progress: Callable[[ReplayProgress], None] | None = None,
    ) -> ReplayResult:
        """Put copies of the selected messages into their queues, for a new first attempt; messages that are gone by now
        are skipped. Those of an ordered topic are put one by one, so that each key keeps its order.

        `rate` is messages per second, by default the topic's QPS; `on_progress` is called with the progress now and
        then. Raises UnknownProject, TopicDraining.
        """
        topic = self._find_open_topic(project).topic
        run = Replay(
            self._store, self._cluster, self, self._copy, lambda: self._find_open_topic(project), self._cluster_config,
            total=selection.total, rate=rate, timeout_s=self._timeout_s, on_progress=on_progress,
            in_flight=1 if topic.ordered else IN_FLIGHT, what="original",
        )  # fmt: skip
        return await run.run(self._read(selection))

    # ---- the source of a replay

    async def is_stored(self, _sequence: int) -> bool:
        """A copy is put whether or not its original has been removed meanwhile."""
        return True

    async def remove(self, _sequence: int) -> None:
        """Originals stay: other subscriptions may need them."""

    # ---- internal

    def _copy(self, message: HandledMessage, topic: Accepted, now: int) -> Copy:
        return replay_handled(message, self._cluster, topic, self._cluster_config, now)

    async def _read(self, selection: Selection) -> AsyncIterator[HandledMessage]:
        at_once = max(1, min(_READ_AT_ONCE, _READ_BYTES // self._store.max_payload))
        for lane, sequences in selection.settled.items():
            for start in range(0, len(sequences), at_once):
                for stored in await self._store.get(lane, sequences[start : start + at_once]):
                    if stored is not None:
                        yield read_handled(stored, self._env, lane)

    def _find_open_topic(self, project: str) -> Accepted:
        """Return the project's topic. Raises UnknownProject, TopicDraining."""
        accepted = self._topics.get(project)
        if accepted is None:
            raise UnknownProject.of(project, self._env)
        if not accepted.can_take_puts:
            raise TopicDraining.of(project, self._env, deleted=accepted.deleted)
        return accepted
