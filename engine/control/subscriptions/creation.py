"""Creates a subscription: the protocol after which no message that it must get can be removed.

1. Its entry in the registry has the state `creating`.
2. Its streams exist.
3. Every process that removes messages follows this registry, and owners of older releases are kept out.
4. Its settle logs have their first records: they say where it begins.
5. The entry has the state `active`.
6. If it begins with messages that are stored already, they are still there. An owner that was stopped in step 3, and
   whose lease has ended, may have sent one last request to remove some.

From the first step on, removal is held. A creation that ends anywhere can be repeated.
docs/adr/0045-subscriptions.md gives the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.base.names import SHARED_KINDS, LaneId
from evenlane.engine.cluster.subscriptions.registry import Subscription
from evenlane.engine.control.subscriptions.acknowledgement import (
    Acknowledgement,
    NotAcknowledged,
    OlderReleaseFound,
    older_release,
)
from evenlane.engine.control.subscriptions.deletion import SubscriptionDeletion
from evenlane.engine.control.subscriptions.first_records import begin_logs, find_removed
from evenlane.engine.control.subscriptions.living_nodes import find_older
from evenlane.engine.control.subscriptions.project_patterns import check_patterns
from evenlane.engine.control.subscriptions.registry_editor import RegistryEditor
from evenlane.engine.control.subscriptions.start_point import NEW
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.errors import EvenlaneError, hint
from evenlane.quota.topics.fields import MOST_SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.control.subscriptions.registry_editor import Known
    from evenlane.engine.control.subscriptions.start_point import StartPoint
    from evenlane.engine.core.ports import Store
    from evenlane.ring.coordination.ports import Coordination

LIMIT_S = 30.0
_POLL_S = 0.2


class Stores(NamedTuple):
    """Open stores: that of the cluster without a name, and that of the subscription's cluster."""

    shared: Store
    own: Store


class SubscriptionCreation:
    """Creates the subscription `name`. `limit_s` is the time for which it waits for the owners of partitions."""

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
        self._coordination, self._env, self._name = coordination, env, names.check_subscription(name)
        self._config, self._stores, self._limit_s = cluster_config, stores, limit_s
        self._cluster = names.cluster_name(env, name)
        self._editor = RegistryEditor(coordination, env)
        self._acknowledgement = Acknowledgement(coordination, env, cluster_config.partitions, stores.shared, limit_s)
        self._deletion = SubscriptionDeletion(coordination, env, name, stores.own)

    async def run(self, projects: Sequence[str] = (), start: StartPoint | None = None) -> frozenset[int]:
        """Create the subscription, or complete a creation that was interrupted; of one that exists, create the streams
        that are missing. `projects` are patterns; none: all projects. `start` is where it begins; None: with new
        messages, or where the interrupted creation begins.

        Returns the partitions of which messages were removed meanwhile that it should get.

        Raises EvenlaneError (ConfigError), without a change of the registry if the subscription can't be created;
        Lost, Refused, CoordinationError.
        """
        check_patterns(projects)
        if self._config.max_queue_backlog is not None:
            raise EvenlaneError(
                f"environment {self._env!r} has a max_queue_backlog, so it can't have subscriptions: NATS would refuse"
                " puts because of messages that only a subscription still needs"
            )
        missing = await self._stores.own.find_missing_streams()
        _, known = await self._editor.read()
        self._with_entry(known, projects, start, missing=missing)
        has_logs, is_active = names.settled_stream(self._cluster) not in missing, _is_active(known.get(self._name))
        if older := await self._find_older(known):
            raise self._older_release(older)
        partitions = range(self._config.partitions)
        await self._stores.shared.prepare([LaneId(kind, each) for each in partitions for kind in SHARED_KINDS])
        began, entry = False, Subscription(state="creating")

        def begin(known: Known) -> Known | None:
            nonlocal began, entry
            changed = self._with_entry(known, projects, start, missing=missing)
            began, entry = changed is not None, (changed or known)[self._name]
            return changed

        revision = await self._editor.change(begin)
        await self._stores.own.create_own_streams()
        began = began and not has_logs  # otherwise etcd has lost it, and there is more to lose than this creation
        since, shared, own = entry.since, self._stores.shared, self._stores.own
        marked = await self._wait(revision, since, frozenset(), began=began)
        try:
            await begin_logs(shared, own, partitions, entry.start, lost=is_active and not has_logs)
        except (Lost, Refused):
            _, known = await self._editor.read()
            self._activated(known, since)  # the streams are gone if somebody has deleted it meanwhile
            raise
        await self._wait(revision, since, marked, began=began)
        await self._editor.change(lambda known: self._activated(known, since))
        return await find_removed(shared, own, partitions) if entry.start is not None else frozenset()

    # ---- the registry

    def _with_entry(
        self, known: Known, projects: Sequence[str], start: StartPoint | None, *, missing: Sequence[str]
    ) -> Known | None:
        """The registry with the new entry; None if a creation that was interrupted is to be completed, or if some of
        its streams are `missing`. Raises EvenlaneError if the subscription can't be created.
        """
        found = known.get(self._name)
        if found is None:
            if len(known) >= MOST_SUBSCRIPTIONS:
                raise EvenlaneError(
                    f"environment {self._env!r} has {MOST_SUBSCRIPTIONS} subscriptions, and can't have more:"
                    f" {hint('subscriptions list', self._env)} lists them"
                )
            return {
                **known,
                self._name: Subscription(
                    state="creating",
                    since=self._stores.shared.now(),
                    projects=[*dict.fromkeys(projects)],
                    returned=names.settled_stream(self._cluster) not in missing,
                    start=None if start is None else start.at,
                    start_text="" if start is None else start.text,
                ),
            }
        if found.state == "active" and not missing:
            raise EvenlaneError(f"environment {self._env!r} already has a subscription {self._name!r}")
        if found.state == "deleting":
            raise EvenlaneError(
                f"subscription {self._name!r} of environment {self._env!r} is being deleted:"
                f" {hint(f'subscriptions delete {self._name}', self._env)} completes that"
            )
        if projects and {*projects} != {*found.projects}:
            began_for = ", ".join(found.projects) or "all projects"
            raise EvenlaneError(
                f"subscription {self._name!r} of environment {self._env!r} is being created for {began_for}: repeat"
                f" that without --projects, or delete it first: {hint(f'subscriptions delete {self._name}', self._env)}"
            )
        if start is not None and start.text != found.start_text and start.at != found.start:
            raise EvenlaneError(
                f"subscription {self._name!r} of environment {self._env!r} is being created from"
                f" {found.start_text or NEW}: repeat that without --from, or delete it first:"
                f" {hint(f'subscriptions delete {self._name}', self._env)}"
            )
        return None

    def _activated(self, known: Known, since: int) -> Known | None:
        """The registry in which the entry of this creation is active; None if another creator has completed it. Raises
        EvenlaneError if it was deleted.
        """
        found = known.get(self._name)
        if found is None or found.since != since or found.state == "deleting":
            raise EvenlaneError(
                f"subscription {self._name!r} of environment {self._env!r} was deleted while it was being created"
            )
        return None if found.state == "active" else {**known, self._name: replace(found, state="active")}

    # ---- those who remove

    async def _wait(self, revision: int, since: int, marked: frozenset[int], *, began: bool) -> frozenset[int]:
        """See `Acknowledgement.wait`. If it is in vain because of older nodes, take back what this call has begun."""
        try:
            return await self._acknowledgement.wait(revision, marked)
        except OlderReleaseFound as error:
            await self._give_up(since, error.nodes, began=began)
        except NotAcknowledged as error:
            raise EvenlaneError(
                f"subscription {self._name!r} of environment {self._env!r} isn't created yet: {error.who} acknowledged"
                f" it within {self._limit_s:g} s; until then no message is removed from the streams, and"
                f" {hint(f'subscriptions create {self._name}', self._env)} resumes the creation"
            ) from None

    async def _find_older(self, known: Known) -> list[str]:
        clusters = [names.cluster_name(self._env, each) for each in ("", *sorted(known))]
        return await find_older(self._coordination, clusters)

    async def _give_up(self, since: int, older: Sequence[str], *, began: bool) -> NoReturn:
        """Take back what this call has begun, and raise EvenlaneError."""
        if began:
            await self._deletion.take_back(since)
            raise self._older_release(older)
        goes_on = hint(f"subscriptions create {self._name}", self._env)
        raise EvenlaneError(f"{self._older_release(older)}; then {goes_on} resumes the creation")

    def _older_release(self, nodes: Sequence[str]) -> EvenlaneError:
        return older_release(self._env, nodes, "remove messages that a subscription still needs")


def _is_active(found: Subscription | None) -> bool:
    return found is not None and found.state == "active"
