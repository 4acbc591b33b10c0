"""The statuses of a project, from nodes' answers about it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.stats.backlog_tally import merge_counts
from evenlane.engine.core.stats.forecast import is_never
from evenlane.engine.core.stats.wait_targets import target_of
from evenlane.engine.core.status.facts import Failure, StatusFacts, Waiting
from evenlane.engine.core.status.judge import judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.engine.admin.why.question import Question
    from evenlane.engine.core.records.backlog_answer import NodeAnswer, QueueCount
    from evenlane.engine.core.stats.forecast import ForecastInput
    from evenlane.engine.core.status.status import Status

_SECOND = 1_000_000_000


def judge_project(
    question: Question,
    answers: Sequence[NodeAnswer],
    wholes: Mapping[str, QueueCount],
    load: ForecastInput,
    gone_s: float | None,
) -> list[Status]:
    """Return the statuses, the most urgent first. `wholes` has the sum over nodes for each priority."""
    topic = question.topic
    reasons = {reason: found.groups for reason, found in merge_counts(wholes.values()).reasons.items()}
    return judge(StatusFacts(
        project=question.project,
        env=question.env,
        state=None if topic is None else topic.state,
        qps=None if topic is None else topic.qps,
        waiting=tuple(Waiting(name, part.waiting, part.oldest_s, target_of(name)) for name, part in wholes.items()),
        rates=load.rates,
        reasons=reasons,
        unserved=question.unserved,
        deleted=question.deleted,
        is_pushed=topic is not None and topic.push is not None,
        failure=_failure(question, answers),
        gone_s=gone_s,
        never=is_never(load),
        stopped_by=question.paused_by,
        is_lost=question.lost,
        subscription=question.subscription,
    ))  # fmt: skip


def _failure(question: Question, answers: Sequence[NodeAnswer]) -> Failure:
    failed = sorted((answer for answer in answers if answer.error), key=lambda answer: -answer.rates.failed)
    failing_s = min((answer.failing_s for answer in answers if answer.failing_s is not None), default=None)
    since = None if failing_s is None else question.at - round(failing_s * _SECOND)
    return Failure(failed[0].error if failed else "", since)
