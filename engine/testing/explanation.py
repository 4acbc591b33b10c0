"""Explains why messages wait, as `evenlane why --json` does, from one node's knowledge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.admin.why.document import document
from evenlane.engine.admin.why.question import Question
from evenlane.engine.core.queue.queue_head import head_waits_since
from evenlane.engine.core.records.backlog_answer import NodeAnswer
from evenlane.engine.core.stats.backlog_tally import QueueView, Tally
from evenlane.engine.core.stats.forecast import UNKNOWN
from evenlane.engine.telemetry.wait_reasons import count_not_due

if TYPE_CHECKING:
    from evenlane.engine.node.node import Node
    from evenlane.quota.topics.topic import Topic


def explain(node: Node, project: str, topic: Topic | None) -> dict[str, Any]:
    """Return the document for a project. Rates aren't measured, so it has no forecast."""
    config = node.cluster_config
    tally = Tally(node.store.now())
    queues = node.queues.of_project(project)
    for queue in queues:
        delayed, next_due = count_not_due(node, queue)
        reason = node.wait_rules.reason(queue) if queue.backlog else None
        tally.add(
            QueueView(queue.priority, queue.group, queue.backlog, delayed, next_due, head_waits_since(queue), reason)
        )
    for message in node.in_flight:
        if message.project == project:
            tally.add_running(message.priority)
    pause = node.pauses.reason(project)
    answer = NodeAnswer(
        node.id, len(queues), tally.parts, tally.deepest, UNKNOWN, [] if pause is None else [pause],
        partitions=list(node.partitions),
    )  # fmt: skip
    question = Question(project, node.env, node.store.now(), config.priorities, topic, config.max_group_qps)
    return document(question, [answer])


def count_backlog(node: Node, project: str) -> int:
    """The number of the project's messages that wait: for their turn, until they are due, or for their next attempt.
    Messages that are being handled don't count.
    """
    queues = node.queues.of_project(project)
    # (both count messages of a kind without a handler)
    waiting = sum(queue.backlog + len(node.eligibility.list_resting(queue)) - queue.unhandled for queue in queues)
    return waiting + sum(count_not_due(node, queue)[0] for queue in queues)
