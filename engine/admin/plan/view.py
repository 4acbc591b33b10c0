"""Builds the view of `evenlane plan` from etcd, which has all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config, no_such_environment
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.cluster.subscriptions.registry import RegistryRecord, registry_key
from evenlane.engine.control.subscriptions.client import SubscriptionClient
from evenlane.quota.topics.resolve import resolve
from evenlane.quota.topics.topic import TopicError, decode_accepted
from evenlane.ring.membership.handlers import explain_differences
from evenlane.ring.membership.records import DoneRecord, GenerationRecord, LeaderRecord, NodeRecord, PlanRecord
from evenlane.ring.placement.load import Demand, partition_loads, queues_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.subscriptions.registry import Subscription
    from evenlane.ring.hashing import Layout
    from evenlane.ring.membership.records import R


class PlanView(NamedTuple):
    """A document, and a sentence for each value that was skipped."""

    document: dict[str, Any]
    problems: list[str]


async def read(settings: Settings) -> PlanView:
    """Read the present plan of the settings' subscription, as of one revision. Raises EvenlaneError if there is no such
    environment or subscription; Unreachable.
    """
    with connections.translate_errors():
        etcd = connections.etcd(settings)
        try:
            prefix = names.key(settings.env, "")
            values = {item.key.removeprefix(prefix): item.value for item in (await etcd.list(prefix)).items}
            if "settings" not in values:
                raise no_such_environment(settings.env)
            if settings.subscription is not None:
                await SubscriptionClient(etcd, settings.env).check(settings.subscription)
            return view(settings.cluster, await agree_cluster_config(etcd, settings.env, {}), values)
        finally:
            await etcd.close()


def view(cluster: str, cluster_config: ClusterConfig, values: Mapping[str, bytes]) -> PlanView:
    """Build the view of one subscription's nodes. `values` are those of the environment's keys, without their common
    prefix.
    """
    seen = _Keys(cluster, values, cluster_config.layout)
    nodes = {name: seen.record(NodeRecord, "nodes", name) or NodeRecord() for name in seen.list_under("nodes")}
    plans = {name: found for name in seen.list_under("plan") if (found := seen.record(PlanRecord, "plan", name))}
    owners = seen.owners(cluster_config.partitions)
    demands = seen.demands()
    newest = seen.record(GenerationRecord, "generation")
    leader = seen.record(LeaderRecord, "leader")
    generation = max([newest.generation if newest else 0, *(plan.generation for plan in plans.values())])
    state = _ClusterState(
        generation=generation,
        loads=partition_loads(demands, cluster_config.partitions),
        queues=queues_of(demands, cluster_config.partitions, len(cluster_config.priorities)),
        owners=owners,
    )
    rows = []
    for name, node in nodes.items():
        planned = seen.list_known(plans[name].partitions, cluster_config.partitions, name) if name in plans else []
        done = state.find_done_generation(plans.get(name), seen.record(DoneRecord, "done", name))
        rows.append(state.row(name, node, planned, done))
    document = {
        "env": names.env_of(cluster), "subscription": names.subscription_of(cluster) or None,
        "generation": generation, "leader": leader.id if leader else None,
        "partitions": cluster_config.partitions, "nodes": rows,
        "unowned": [partition for partition in range(cluster_config.partitions) if partition not in owners],
        "corrupt": len(seen.problems), "handlers_differ": explain_differences(nodes),
    }  # fmt: skip
    return PlanView(document, seen.problems)


class _ClusterState(NamedTuple):
    """Loads (msg/s) and queues by partition, owners, and the newest generation."""

    generation: int
    loads: list[float]
    queues: list[int]
    owners: dict[int, str]

    def find_done_generation(self, plan: PlanRecord | None, done: DoneRecord | None) -> int:
        """Return the generation that a node has carried out. A later generation that didn't change the node's plan key
        counts as carried out once the generation in that key has been carried out.
        """
        if done is None:
            return 0
        up_to_date = plan is not None and done.generation >= plan.generation
        return self.generation if up_to_date else done.generation

    def row(self, name: str, node: NodeRecord, planned: list[int], done: int) -> dict[str, Any]:
        return {
            "id": name, "partitions": planned,
            "owns": sorted(partition for partition, owner in self.owners.items() if owner == name),
            "qps": round(sum(self.loads[partition] for partition in planned), 6),
            "queues": sum(self.queues[partition] for partition in planned), "done_generation": done,
            "host": node.host, "cpu": node.cpu, "cores": node.cores, "projects": node.projects,
            "in_flight": node.in_flight, "leaving": node.leaving, "passed_over": node.passed_over,
            "handlers": node.handlers, "zone": node.zone,
        }  # fmt: skip


class _Keys:
    """Decodes the keys of a cluster (`_values`), and those that all subscriptions of its environment share (`_shared`).
    `problems` has a sentence for each invalid value.
    """

    def __init__(self, cluster: str, values: Mapping[str, bytes], layout: Layout) -> None:
        self.problems: list[str] = []
        self._cluster, self._layout, self._shared = cluster, layout, values
        self._env, self._subscription = names.env_of(cluster), names.subscription_of(cluster) or None
        own = names.key(cluster, "").removeprefix(names.key(self._env, ""))  # empty for the unnamed one
        self._values = {key.removeprefix(own): value for key, value in values.items() if key.startswith(own)}
        self._records = RecordReader(cluster, self.problems.append)

    def list_under(self, folder: str) -> list[str]:
        return _list_under(folder, self._values)

    def record(self, kind: type[R], *parts: str) -> R | None:
        raw = self._values.get("/".join(parts))
        return None if raw is None else self._records.read(kind, names.key(self._cluster, *parts), raw)

    def owners(self, partitions: int) -> dict[int, str]:
        return self._records.owners(
            ((name, self._values[f"owners/{name}"]) for name in self.list_under("owners")), partitions
        )

    def list_known(self, planned: Iterable[int], partitions: int, node: str) -> list[int]:
        """Return the existing partitions among the planned ones."""
        listed = set(planned)
        found = sorted(partition for partition in listed if 0 <= partition < partitions)
        if len(found) < len(listed):
            key = names.key(self._cluster, "plan", node)
            self.problems.append(f"{key} names partitions that don't exist: there are {partitions}")
        return found

    def demands(self) -> list[Demand]:
        found, subscriber = [], self._read_subscription()
        for project in _list_under("accepted", self._shared):
            if subscriber is not None and not subscriber.filter.takes_project(project):
                continue
            try:
                topic = resolve(decode_accepted(self._shared[f"accepted/{project}"]), self._subscription).topic
            except (TopicError, msgspec.MsgspecError) as error:
                self.problems.append(f"{names.key(self._env, 'accepted', project)} is not valid: {error}")
            else:
                found.append(Demand(project, topic.qps, topic.groups, topic.spread, self._layout))
        return found

    def _read_subscription(self) -> Subscription | None:
        raw = self._shared.get("subscriptions") if self._subscription is not None else None
        if raw is None or self._subscription is None:
            return None
        registry = self._records.read(RegistryRecord, registry_key(self._env), raw)
        return registry.subscriptions.get(self._subscription) if registry is not None else None


def _list_under(folder: str, values: Mapping[str, bytes]) -> list[str]:
    prefix = f"{folder}/"
    return sorted(key.removeprefix(prefix) for key in values if key.startswith(prefix))
