"""Client of `evenlane why`: asks all nodes that own partitions, and merges their answers."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from evenlane.engine.admin.scatter import NodesClient, scatter
from evenlane.engine.admin.session import read_accepted
from evenlane.engine.admin.why.document import document
from evenlane.engine.admin.why.positions import list_positions
from evenlane.engine.admin.why.question import Question
from evenlane.engine.admin.why.responder import MEASURE_S
from evenlane.engine.base import names
from evenlane.engine.base.troubles import sentences
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.owners import read_owners, read_troubles
from evenlane.engine.cluster.subscriptions.registry import check_takes_project
from evenlane.engine.control.subscriptions.client import SubscriptionClient
from evenlane.engine.control.topics.client import read_config_or_defaults
from evenlane.engine.control.topics.pause_authors import PauseAuthors
from evenlane.engine.core.records.backlog_answer import NodeAnswer
from evenlane.engine.core.records.why_request import WhyRequest, encode, subject
from evenlane.engine.errors import ConfigError, EvenlaneError, InvalidName, UnknownProject, hint
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.quota.topics.topic import Accepted


@dataclass(frozen=True)
class ClusterView:
    """etcd's view of a cluster. `owners`: partition -> node; `troubles`: node -> kind -> sentence; `subscription` is
    empty for the unnamed one.
    """

    env: str
    cluster_config: ClusterConfig
    accepted: Accepted | None
    owners: dict[int, str]
    troubles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    subscription: str = ""

    @property
    def is_rolled_back(self) -> bool:
        """Whether a node reports that etcd has lost topics or owners: etcd may then have lost this project, too."""
        return self.has_lost_topics or any("ownership" in its for its in self.troubles.values())

    @property
    def has_lost_topics(self) -> bool:
        return any("topics" in its for its in self.troubles.values())

    def count_unserved(self, project: str, answers: Iterable[NodeAnswer] = ()) -> int:
        """Return the number of the project's groups in partitions that no node owns, or whose owner, by its own answer,
        doesn't serve them. If etcd doesn't know the project, its groups may be in any partition.
        """
        served = {answer.node: answer.partitions for answer in answers if answer.partitions is not None}
        owned = {p for p, node in self.owners.items() if node not in served or p in served[node]}
        count = self.cluster_config.partitions
        if self.accepted is None:
            return sum(number not in owned for number in range(count))
        spread = self.accepted.topic.spread
        groups = (*range(self.accepted.active), *self.accepted.draining)
        layout = self.cluster_config.layout
        return sum(partition_of(project, group, spread, count, layout) not in owned for group in groups)


async def why(
    settings: Settings,
    project: str,
    *,
    priority: str | None = None,
    within: float | None = None,
    positions: bool = False,
) -> dict[str, Any]:
    """Explain why a project's messages wait, and forecast when they are gone, on connections of its own: see
    `WhyClient.why`.
    """
    with connections.translate_errors():
        etcd = connections.etcd(settings)
        try:
            if settings.subscription is not None:
                entry = await SubscriptionClient(etcd, settings.env).check(settings.subscription)
                check_takes_project(entry.filter, settings.subscription, project)
            client = WhyClient(etcd, settings.cluster, partial(_connect, settings))
            return await client.why(project, priority, within, positions=positions)
        finally:
            await etcd.close()


class WhyClient(NodesClient):
    """Requests explanations."""

    timeout_s = MEASURE_S + 2.0  # an answer takes the node's measuring time, and some more

    async def why(
        self, project: str, priority: str | None = None, within: float | None = None, *, positions: bool = False
    ) -> dict[str, Any]:
        """Explain why a project's messages wait, and forecast when they are gone: see
        `evenlane.engine.admin.why.document.document`. `within` is in seconds. With `positions`, the answer also says
        how far each queue has come.

        Raises InvalidName and ConfigError for invalid arguments; UnknownProject if neither etcd nor any node knows the
        project; Unreachable; EvenlaneError if no node answers; CoordinationError.
        """
        names.check_project(project)
        if within is not None and within <= 0:
            raise ConfigError("within must be more than 0 seconds")
        cluster = await self._read_cluster(project)
        if priority is not None and priority not in cluster.cluster_config.priorities:
            known = ", ".join(cluster.cluster_config.priorities)
            raise InvalidName(f"priority {priority!r} is not one of this cluster's: {known}")
        nodes = sorted(set(cluster.owners.values()))
        if not nodes:
            raise _explain_no_owner(project, cluster)
        async with self._line() as line:
            body = encode(WhyRequest(positions, priority or ""))
            answers = await gather(line, self._cluster, project, nodes, self.timeout_s, body)
        if not answers:
            raise _explain_no_answer(project, nodes, cluster, self.timeout_s)
        silent = sorted(set(nodes) - {answer.node for answer in answers})
        has_trace = cluster.accepted is not None or any(answer.queues or answer.lost is not None for answer in answers)
        if not has_trace and not cluster.is_rolled_back:
            raise _unknown(project, self._env, silent)
        question = _question(project, cluster, answers, silent, priority, within)
        question = replace(question, paused_by=await self._read_paused_by(project, cluster.accepted))
        answer = document(question, answers)
        if positions:
            answer["positions"] = list_positions(answers, cluster.cluster_config.priorities)
        return answer

    async def _read_paused_by(self, project: str, accepted: Accepted | None) -> str:
        if accepted is None or accepted.deleted or accepted.topic.state != "paused":
            return ""
        return (await PauseAuthors(self._etcd, self._env).read({project: accepted.revision}))[project]

    async def _read_cluster(self, project: str) -> ClusterView:
        cluster_config = await read_config_or_defaults(self._etcd, self._env)
        subscription = names.subscription_of(self._cluster)
        accepted = await read_accepted(self._etcd, self._env, project, subscription or None)
        owned = await read_owners(self._etcd, self._cluster, cluster_config.partitions)
        troubles = await read_troubles(self._etcd, self._cluster)
        return ClusterView(self._env, cluster_config, accepted, owned, troubles, subscription)


def _question(
    project: str,
    cluster: ClusterView,
    answers: list[NodeAnswer],
    silent: list[str],
    priority: str | None,
    within: float | None,
) -> Question:
    accepted, cluster_config = cluster.accepted, cluster.cluster_config
    known = {answer.node: answer.lost for answer in answers if answer.lost is not None and accepted is None}
    topic = accepted.topic if accepted is not None else next(iter(known.values()), None)
    return Question(
        project=project, env=cluster.env, subscription=cluster.subscription, at=time.time_ns(),
        priorities=cluster_config.priorities,
        topic=topic, lost=accepted is None and (bool(known) or cluster.has_lost_topics),
        deleted=accepted is not None and accepted.deleted,
        max_group_qps=cluster_config.max_group_qps, unserved=cluster.count_unserved(project, answers),
        silent=silent, only=priority, within=within, troubles=[*sentences(_omit_lost_topics(cluster.troubles, known))],
    )  # fmt: skip


def _omit_lost_topics(
    troubles: Mapping[str, Mapping[str, str]], nodes: Collection[str]
) -> dict[str, Mapping[str, str]]:
    """Leave out reports of lost topics from nodes whose answer already says so."""
    return {
        node: {kind: its_fields for kind, its_fields in its.items() if kind != "topics" or node not in nodes}
        for node, its in troubles.items()
    }


async def gather(
    connection: RequestBus,
    cluster: str,
    project: str,
    nodes: list[str],
    timeout: float,  # noqa: ASYNC109 - answers until then are returned
    body: bytes = b"",
) -> list[NodeAnswer]:
    """Return the answers to the question `body` that arrive from these nodes within `timeout` seconds. Raises
    Unreachable.
    """
    answers = await scatter(connection, subject(cluster, project), nodes, _read, timeout, body=body)
    return [answers[node] for node in nodes if node in answers]


def _read(body: bytes) -> tuple[str, NodeAnswer]:
    answer = msgspec.json.decode(body, type=NodeAnswer)
    return answer.node, answer


@asynccontextmanager
async def _connect(settings: Settings) -> AsyncIterator[RequestBus]:
    connection = connections.bus(settings, "evenlane why")
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()


def _explain_no_owner(project: str, cluster: ClusterView) -> EvenlaneError:
    if cluster.accepted is None:
        nobody = ", and no node is running there, so its backlog isn't known"
        error = UnknownProject.of(project, cluster.env, nobody)
        return UnknownProject(f"{error}; if etcd has lost it, {hint('topics apply FILE', cluster.env)} restores it")
    named = cluster.subscription
    works, flag = (f" for subscription {named!r}", f" --subscription {named}") if named else ("", "")
    return EvenlaneError(
        f"no_owner: no node is running{works} in environment {cluster.env!r}, so no message of project {project!r} is"
        f" handled{works}, and its backlog isn't known: `evenlane run --handler MODULE:FUNCTION --env"
        f" {cluster.env}{flag}` starts one"
    )


def _explain_no_answer(project: str, nodes: list[str], cluster: ClusterView, timeout_s: float) -> EvenlaneError:
    problem = f"no answer came within {timeout_s:g} s from {', '.join(nodes)}: only they know why {project} waits"
    return EvenlaneError("; ".join([problem, *sentences(cluster.troubles)]))


def _unknown(project: str, env: str, silent: list[str]) -> UnknownProject:
    if not silent:
        return UnknownProject.of(project, env, ", and no node has any of its messages")
    others = ", and the nodes that answered have none of its messages"
    return UnknownProject.of(project, env, f"{others}; no answer came from {', '.join(silent)}")
