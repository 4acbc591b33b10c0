"""Decides which statuses a project has. Pure.

Every surface that says how a project fares uses this decision: the status page, `evenlane top`, `evenlane why`, the
report. The alerts have the same names (tests/dashboards/test_status_words.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.status import rules
from evenlane.engine.core.status.status import OK, Status
from evenlane.engine.core.status.words import format_waiting

if TYPE_CHECKING:
    from evenlane.engine.core.status.facts import StatusFacts

_ALWAYS = (rules.no_owner, rules.no_topic, rules.deleted, rules.paused, rules.draining)
_WHILE_RUNNING = (
    rules.no_handler, rules.stuck, rules.failing, rules.expiring, rules.endpoint, rules.over_quota, rules.late,
)  # fmt: skip
_EXPLAIN_LATE = frozenset({"no_handler", "stuck", "endpoint", "over_quota"})


def judge(facts: StatusFacts) -> list[Status]:
    """Return all statuses of a project, the most urgent first; never empty.

    A topic that is paused, deleted or missing handles nothing: what else could be said of it follows from that. A
    status that explains why messages are late replaces `late`, and any other replaces `waiting`.
    """
    stops = facts.state is None or facts.state == "paused"
    applied = _ALWAYS if stops else (*_ALWAYS, *_WHILE_RUNNING)
    found = [status for rule in applied if (status := rule(facts)) is not None]
    names = {status.name for status in found}
    if names & _EXPLAIN_LATE:
        found = [status for status in found if status.name != "late"]
    if not found and (waits := rules.waiting(facts)) is not None:
        found = [waits]
    return sorted(found, key=lambda status: status.urgency) or [_fine(facts)]


def _fine(facts: StatusFacts) -> Status:
    return OK if not facts.backlog else OK._replace(sentence=format_waiting(facts.backlog, facts.oldest_s))
