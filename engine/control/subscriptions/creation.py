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


class _Begun(NamedTuple):
    """What the registry says of the creation, as of `revision`. `is_ours`: this call has written the entry, and the
    subscription had no settle logs. Otherwise etcd has lost it, and there is more to lose than this creation.
    """

    revision: int
    entry: Subscription
    is_ours: bool


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
        self._check_environment()
        missing = await self._stores.own.find_missing_streams()
        _, known = await self._editor.read()
        self._with_entry(known, projects, start, missing)
        if older := await self._find_older(known):
            raise self._older_release(older)
        lost = _is_active(known.get(self._name)) and names.settled_stream(self._cluster) in missing
        lanes = [LaneId(kind, each) for each in range(self._config.partitions) for kind in SHARED_KINDS]
        await self._stores.shared.prepare(lanes)
        begun = await self._write_entry(projects, start, missing)
        await self._stores.own.create_own_streams()
        marked = await self._wait(begun, frozenset())
        await self._begin_logs(begun.entry, lost=lost)
        await self._wait(begun, marked)
        await self._editor.change(lambda known: self._activated(known, begun.entry.since))
        if begun.entry.start is None:
            return frozenset()
        return await find_removed(*self._stores, range(self._config.partitions))

    def _check_environment(self) -> None:
        if self._config.max_queue_backlog is not None:
            raise EvenlaneError(
                f"environment {self._env!r} has a max_queue_backlog, so it can't have subscriptions: NATS would refuse"
                " puts because of messages that only a subscription still needs"
            )

    async def _begin_logs(self, entry: Subscription, *, lost: bool) -> None:
        """Write the first records. `lost`: the subscription was active, and its settle logs are gone."""
        try:
            await begin_logs(*self._stores, range(self._config.partitions), entry.start, lost=lost)
        except (Lost, Refused):
            _, known = await self._editor.read()
            self._activated(known, entry.since)  # the streams are gone if somebody has deleted it meanwhile
            raise

    # ---- the registry

    async def _write_entry(self, projects: Sequence[str], start: StartPoint | None, missing: Sequence[str]) -> _Begun:
        has_logs = names.settled_stream(self._cluster) not in missing
        edits: list[tuple[Subscription, bool]] = []

        def edit(known: Known) -> Known | None:
            changed = self._with_entry(known, projects, start, missing)
            edits.append(((changed or known)[self._name], changed is not None))
            return changed

        revision = await self._editor.change(edit)
        entry, is_new = edits[-1]
        return _Begun(revision, entry, is_new and not has_logs)

    def _with_entry(
        self, known: Known, projects: Sequence[str], start: StartPoint | None, missing: Sequence[str]
    ) -> Known | None:
        """The registry with the new entry; None if a creation that was interrupted is to be completed, or if some of
        its streams are `missing`. Raises EvenlaneError if the subscription can't be created.
        """
        if (found := known.get(self._name)) is not None:
            self._check_resumable(found, projects, start, missing)
            return None
        if len(known) >= MOST_SUBSCRIPTIONS:
            raise EvenlaneError(
                f"environment {self._env!r} has {MOST_SUBSCRIPTIONS} subscriptions, and can't have more:"
                f" {hint('subscriptions list', self._env)} lists them"
            )
        entry = Subscription(
            state="creating",
            since=self._stores.shared.now(),
            projects=[*dict.fromkeys(projects)],
            returned=names.settled_stream(self._cluster) not in missing,
            start=None if start is None else start.at,
            start_text="" if start is None else start.text,
        )
        return {**known, self._name: entry}

    def _check_resumable(
        self, found: Subscription, projects: Sequence[str], start: StartPoint | None, missing: Sequence[str]
    ) -> None:
        """Check that this call may complete the creation of `found`. Raises EvenlaneError."""
        if found.state == "active" and not missing:
            raise EvenlaneError(f"environment {self._env!r} already has a subscription {self._name!r}")
        which, deletes = f"subscription {self._name!r} of environment {self._env!r}", self._hint("delete")
        if found.state == "deleting":
            raise EvenlaneError(f"{which} is being deleted: {deletes} completes that")
        if projects and {*projects} != {*found.projects}:
            began_for = ", ".join(found.projects) or "all projects"
            raise EvenlaneError(
                f"{which} is being created for {began_for}: repeat that without --projects, or delete it first:"
                f" {deletes}"
            )
        if start is not None and start.text != found.start_text and start.at != found.start:
            raise EvenlaneError(
                f"{which} is being created from {found.start_text or NEW}: repeat that without --from, or delete it"
                f" first: {deletes}"
            )

    def _activated(self, known: Known, since: int) -> Known | None:
        """The registry in which the entry of this creation is active; None if another creator has completed it. Raises
        EvenlaneError if it was deleted.
        """
        found = known.get(self._name)
        if found is None or found.since != since or found.state == "deleting":
            raise self._deleted()
        return None if found.state == "active" else {**known, self._name: replace(found, state="active")}

    def _deleted(self) -> EvenlaneError:
        return EvenlaneError(
            f"subscription {self._name!r} of environment {self._env!r} was deleted while it was being created"
        )

    def _hint(self, verb: str) -> str:
        return hint(f"subscriptions {verb} {self._name}", self._env)

    # ---- those who remove

    async def _wait(self, begun: _Begun, marked: frozenset[int]) -> frozenset[int]:
        """See `Acknowledgement.wait`. If it is in vain because of older nodes, take back what this call has begun."""
        try:
            return await self._acknowledgement.wait(begun.revision, marked)
        except OlderReleaseFound as error:
            await self._give_up(begun, error.nodes)
        except NotAcknowledged as error:
            raise EvenlaneError(
                f"subscription {self._name!r} of environment {self._env!r} isn't created yet: {error.who} acknowledged"
                f" it within {self._limit_s:g} s; until then no message is removed from the streams, and"
                f" {self._hint('create')} resumes the creation"
            ) from None

    async def _find_older(self, known: Known) -> list[str]:
        clusters = [names.cluster_name(self._env, each) for each in ("", *sorted(known))]
        return await find_older(self._coordination, clusters)

    async def _give_up(self, begun: _Begun, older: Sequence[str]) -> NoReturn:
        """Take back what this call has begun, and raise EvenlaneError."""
        if begun.is_ours:
            await self._deletion.take_back(begun.entry.since)
            raise self._older_release(older)
        raise EvenlaneError(f"{self._older_release(older)}; then {self._hint('create')} resumes the creation")

    def _older_release(self, nodes: Sequence[str]) -> EvenlaneError:
        return older_release(self._env, nodes, "remove messages that a subscription still needs")


def _is_active(found: Subscription | None) -> bool:
    return found is not None and found.state == "active"
