"""Resets a subscription to a time: it gets again what was stored since then, or skips what waits.

1. The registry says when the subscription was reset, and to which time. From then on the settle logs of before count
   for nothing, neither for owners that remove messages, nor for the next owners of the subscription.
2. Every process that removes messages follows this registry.
3. The owners of the subscription have taken their partitions over again. Where nobody owns, the next owner begins
   there.

A reset that ends anywhere after its first step takes effect. It can be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.base.plural import format_count
from evenlane.engine.cluster.subscriptions.registry import (
    RegistryView,
    Subscription,
    check_active,
    no_such_subscription,
)
from evenlane.engine.control.subscriptions.creation import LIMIT_S
from evenlane.engine.control.subscriptions.first_records import each_lane, find_removed
from evenlane.engine.control.subscriptions.lane_start import find_start
from evenlane.engine.control.subscriptions.living_nodes import name_some
from evenlane.engine.control.subscriptions.registry_editor import RegistryEditor
from evenlane.engine.control.subscriptions.remover_watch import RemoverWatch
from evenlane.engine.errors import EvenlaneError, hint

if TYPE_CHECKING:
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.subscriptions.creation import Stores
    from evenlane.engine.control.subscriptions.registry_editor import Known
    from evenlane.engine.control.subscriptions.start_point import StartPoint
    from evenlane.ring.coordination.ports import Coordination


class SubscriptionReset:
    """Resets the subscription `name`. `limit_s` is the time for which it waits for the owners of partitions."""

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        name: str,
        cluster_config: ClusterConfig,
        stores: Stores,
        *,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._env, self._name = env, names.check_subscription(name)
        self._cluster, self._partitions = names.cluster_name(env, name), range(cluster_config.partitions)
        self._stores, self._limit_s = stores, limit_s
        self._editor = RegistryEditor(coordination, env)
        self._removers = RemoverWatch(coordination, env, cluster_config.partitions)
        self._owners = RemoverWatch(coordination, self._cluster, cluster_config.partitions)

    async def check(self) -> Subscription:
        """Return the subscription. Raises EvenlaneError if it doesn't exist, or can't be reset; CoordinationError."""
        _, known = await self._editor.read()
        return self._entry(known)

    async def run(self, start: StartPoint) -> frozenset[int]:
        """Reset the subscription. Returns the partitions of which messages were removed meanwhile that it should get.

        Raises EvenlaneError, without a change if the subscription can't be reset; Lost, Refused, CoordinationError.
        """
        entry = await self.check()

        def edit(known: Known) -> Known:
            nonlocal entry
            found = self._entry(known)
            now = max(self._stores.shared.now(), found.reset + 1)
            entry = replace(found, reset=now, start=now if start.at is None else start.at, start_text=start.text)
            return {**known, self._name: entry}

        revision = await self._editor.change(edit)
        await self._wait(self._removers, revision)
        begins = await self._find_starts(entry.start or 0)
        await self._wait(self._owners, revision, is_own=True)
        shared, own = self._stores
        if start.at is None:
            return frozenset()
        return await find_removed(shared, own, self._partitions, entry.reset, begins)

    # ---- its steps

    async def _wait(self, watch: RemoverWatch, revision: int, *, is_own: bool = False) -> None:
        """Wait until no owner follows a registry before `revision`. The subscription's `own` owners take their
        partitions over again, so they have claimed them since.
        """
        found = await watch.wait(revision, self._limit_s, needs_claim=is_own)
        if not found.late:
            return
        late = sorted({*found.late.values()} - {""})
        who = name_some(late) if late else f"the owner of {format_count(len(found.late), 'partition')}"
        effect = "until then no message that it gets again is removed"
        if is_own:
            effect = "the partitions begin there once their owners answer, or have lost them"
        repeat = hint(f"subscriptions reset {self._name} --to ...", self._env)
        raise EvenlaneError(
            f"subscription {self._name!r} of environment {self._env!r} is reset, but not acknowledged within"
            f" {self._limit_s:g} s by {who}: {effect}; {repeat} may be repeated"
        )

    async def _find_starts(self, at: int) -> dict[int, int]:
        found: dict[int, int] = {}

        async def find(lane: LaneId) -> None:
            shared = self._stores.shared
            found[lane.partition] = await find_start(shared, lane, await shared.state(lane), at)

        await each_lane(self._partitions, ("lanes",), find)
        return found

    def _entry(self, known: Known) -> Subscription:
        if self._name not in known:
            raise no_such_subscription(self._name, self._env, known)
        return check_active(RegistryView(1, known), self._env, self._name)
