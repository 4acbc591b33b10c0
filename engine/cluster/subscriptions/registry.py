"""The registry: one key with all named subscriptions of an environment, `/evenlane/<env>/subscriptions`. Pure.

The key doesn't exist as long as there is none, and no settled messages are kept. All changes compare its mod-revision,
so a *view* of the registry is that revision. docs/adr/0045-subscriptions.md says why nothing may be removed by a view
that is too old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from evenlane.engine.base import names
from evenlane.engine.core.queue.subscription_filter import SubscriptionFilter
from evenlane.engine.errors import EvenlaneError, InvalidName, hint
from evenlane.ring.coordination.ports import Absent, ModifiedAt
from evenlane.ring.membership.records import Record, RecordError, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.ring.coordination.ports import Compare, KeyValue

State: TypeAlias = Literal["creating", "active", "deleting"]
_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_WORDS = {"creating": "being created", "deleting": "being deleted"}


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """One named subscription. `since` (unix ns) is when its creation began. `projects` are patterns of the projects
    whose messages it gets; empty: all. With `returned`, its settle logs were there before: etcd had lost it.

    `start` (unix ns) is the time of the first messages that it gets, 0: all that are stored, None: none of those that
    were stored before its creation. `start_text` is what the command for that said. `reset` (unix ns) is when it was
    last reset to `start`, 0: never. Each reset has a later time than the one before.
    """

    state: State
    since: _Time = 0
    projects: list[str] = []
    returned: bool = False
    start: _Time | None = None
    start_text: str = ""
    reset: _Time = 0

    @property
    def due_from(self) -> int:
        """The time (unix ns) from which on it gets delayed messages. One that has returned gets all that it hasn't
        settled.
        """
        if self.returned and not self.reset:
            return 0
        return self.since if self.start is None else self.start

    @property
    def filter(self) -> SubscriptionFilter:
        """Which messages of the shared streams it gets."""
        return SubscriptionFilter(self.due_from, tuple(self.projects), self.reset)


class Retain(msgspec.Struct, frozen=True, kw_only=True):
    """How long messages are kept after all subscriptions have settled them (ns), and the most bytes that the streams of
    an environment may have for that.
    """

    age: Annotated[int, msgspec.Meta(gt=0)]
    most_bytes: Annotated[int, msgspec.Meta(gt=0)]


class RegistryRecord(Record, frozen=True, kw_only=True):
    """The value of the key: subscriptions by name, and whether settled messages are kept."""

    subscriptions: dict[str, Subscription] = msgspec.field(default_factory=dict)
    retain: Retain | None = None


class RegistryView(NamedTuple):
    """The registry at a mod-revision of its key; 0: the key doesn't exist.

    `subscriptions` is None if the value can't be read. Then nobody knows what others still need, and nothing may be
    removed.
    """

    revision: int = 0
    subscriptions: Mapping[str, Subscription] | None = {}
    retain: Retain | None = None

    @property
    def exists(self) -> bool:
        return self.revision > 0

    def compare(self, env: str) -> Compare:
        """The comparison that holds as long as the registry is as in this view."""
        key = registry_key(env)
        return ModifiedAt(key, self.revision) if self.exists else Absent(key)

    def list_others(self, cluster: str) -> tuple[str, ...] | None:
        """The clusters of all other subscriptions, also of those that are being created or deleted; None: unknown."""
        if self.subscriptions is None:
            return None
        env = names.env_of(cluster)
        every = ["", *sorted(self.subscriptions)] if self.exists else [""]
        return tuple(each for name in every if (each := names.cluster_name(env, name)) != cluster)

    def reset_of(self, cluster: str) -> int:
        """When this cluster's subscription was last reset (unix ns), 0: never, as far as the registry knows."""
        found = (self.subscriptions or {}).get(names.subscription_of(cluster))
        return found.reset if found is not None else 0

    def takes_project(self, cluster: str, project: str) -> bool:
        """Whether this cluster's subscription gets messages of the project, as far as the registry knows."""
        found = (self.subscriptions or {}).get(names.subscription_of(cluster))
        return found is None or found.filter.takes_project(project)

    def is_remover(self, cluster: str) -> bool:
        """Whether the owners of this cluster remove messages from the shared streams: those of the first subscription,
        which is the one without a name.
        """
        return not names.subscription_of(cluster)


def registry_key(env: str) -> str:
    return names.key(env, "subscriptions")


def read_view(item: KeyValue | None) -> RegistryView:
    """Raises RecordError, which names the key, for a value that can't be read."""
    if item is None:
        return RegistryView()
    record = decode(RegistryRecord, item.key, item.value)
    try:
        found = {names.check_subscription(name): each for name, each in record.subscriptions.items()}
    except InvalidName as error:
        raise RecordError(f"{item.key} is not valid: {error}") from error
    return RegistryView(item.mod_revision, found, record.retain)


def check_active(view: RegistryView, env: str, name: str) -> Subscription:
    """Return the subscription's entry. Raises EvenlaneError unless nodes may work for it."""
    known = view.subscriptions
    if known is None:
        raise EvenlaneError(f"the subscriptions in etcd ({registry_key(env)}) can't be read")
    if name not in known:
        restores = f"if etcd has lost it, {hint(f'subscriptions create {name}', env)} restores it"
        raise EvenlaneError(f"{no_such_subscription(name, env, known)}; {restores}")
    return check_complete(known[name], env, name)


def check_complete(found: Subscription, env: str, name: str) -> Subscription:
    """Return the entry of a subscription. Raises EvenlaneError while it is being created or deleted."""
    if (state := found.state) != "active":
        verb = "create" if state == "creating" else "delete"
        ends = hint(f"subscriptions {verb} {name}", env)
        raise EvenlaneError(f"subscription {name!r} of environment {env!r} is {_WORDS[state]}: {ends} completes that")
    return found


def check_takes_project(chosen: SubscriptionFilter, name: str, project: str) -> None:
    """Raises EvenlaneError unless the subscription gets messages of the project."""
    if not chosen.takes_project(project):
        raise EvenlaneError(
            f"subscription {name!r} gets no messages of {project}: its projects are {', '.join(chosen.projects)}"
        )


class NoSuchSubscription(EvenlaneError):
    """The environment has no subscription of this name."""


def no_such_subscription(name: str, env: str, known: Iterable[str]) -> NoSuchSubscription:
    listed = ", ".join(sorted(known))
    there = f"there are {listed}, and the one without a name" if listed else "there is only the one without a name"
    return NoSuchSubscription(f"environment {env!r} has no subscription {name!r}: {there}")
