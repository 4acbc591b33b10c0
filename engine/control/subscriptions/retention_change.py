"""Sets how long an environment keeps settled messages, so that subscriptions can get them again.

The registry says it. Once every process that removes messages follows that registry, each message that is stored from
then on is kept; so are those stored before, as far as they are still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.base.durations import format_duration
from evenlane.engine.base.names import SHARED_KINDS, LaneId
from evenlane.engine.base.sizes import format_size
from evenlane.engine.control.subscriptions.acknowledgement import (
    Acknowledgement,
    NotAcknowledged,
    OlderReleaseFound,
    older_release,
)
from evenlane.engine.control.subscriptions.living_nodes import find_older
from evenlane.engine.control.subscriptions.registry_editor import RegistryEditor
from evenlane.engine.errors import EvenlaneError, hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.subscriptions.registry import Retain
    from evenlane.engine.core.ports import Store
    from evenlane.ring.coordination.ports import Coordination

LIMIT_S = 30.0
_SECOND = 1_000_000_000


class RetentionChange:
    """Changes the retention. `store` is that of the unnamed subscription, and `limit_s` the time for which the change
    waits for the owners of partitions.
    """

    def __init__(
        self, coordination: Coordination, env: str, cluster_config: ClusterConfig, store: Store,
        *, limit_s: float = LIMIT_S,
    ) -> None:  # fmt: skip
        self._coordination, self._env, self._config = coordination, env, cluster_config
        self._store, self._limit_s = store, limit_s
        self._editor = RegistryEditor(coordination, env)
        self._acknowledgement = Acknowledgement(coordination, env, cluster_config.partitions, store, limit_s)

    async def end(self) -> None:
        """Keep settled messages no longer. Raises EvenlaneError, CoordinationError."""
        await self._editor.change_retain(None)

    async def begin(self, retain: Retain) -> None:
        """Keep settled messages from now on. Raises EvenlaneError, without a change if they can't be kept; Lost,
        Refused, CoordinationError.
        """
        if self._config.max_queue_backlog is not None:
            raise EvenlaneError(
                f"environment {self._env!r} has a max_queue_backlog, so it can't keep settled messages: NATS would"
                " refuse puts because of them"
            )
        if older := await self._find_older():
            raise self._older_release(older)
        before = await self._editor.read_retain()
        more = retain.most_bytes - (before.most_bytes if before is not None else 0)
        if more > 0 and not await self._store.has_room(more):
            raise EvenlaneError(
                f"NATS can't store {format_size(more)} more: name fewer bytes by --bytes, or give JetStream more"
                " storage"
            )
        partitions = range(self._config.partitions)
        await self._store.prepare([LaneId(kind, each) for each in partitions for kind in SHARED_KINDS])
        revision = await self._editor.change_retain(retain)
        try:
            await self._acknowledgement.wait(revision)
        except OlderReleaseFound as error:
            raise self._older_release(error.nodes) from None
        except NotAcknowledged as error:
            age, size = format_duration(retain.age / _SECOND), format_size(retain.most_bytes)
            repeat = hint(f"streams retain {age} --bytes {size}", self._env)
            raise EvenlaneError(
                f"settled messages of environment {self._env!r} aren't all kept yet: {error.who} acknowledged it within"
                f" {self._limit_s:g} s; {repeat} waits again"
            ) from None

    async def _find_older(self) -> list[str]:
        _, known = await self._editor.read()
        clusters = [names.cluster_name(self._env, each) for each in ("", *sorted(known))]
        return await find_older(self._coordination, clusters)

    def _older_release(self, nodes: Sequence[str]) -> EvenlaneError:
        return older_release(self._env, nodes, "remove messages that are to be kept")
