"""What a wait reason means in words, and what to do about it. Pure.

Remedies are those of docs/reference/wait-reasons.md.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from evenlane.engine.errors import hint

if TYPE_CHECKING:
    from evenlane.engine.core.status.facts import StatusFacts

_WORDS = MappingProxyType({
    "quota": "it waits for its quota",
    "concurrency": "as many are in flight as its topic, or its endpoint, allows",
    "headroom": "free slots are kept for lighter projects",
    "fairness": "other projects are due first",
    "handlers_busy": "all handlers are busy",
    "higher_priority": "messages of a higher priority go first",
    "not_due": "its messages aren't due yet",
    "ordered": "earlier messages of the same key aren't done",
    "endpoint": "its endpoint, or its handler, asks for pauses",
    "paused": "its topic is paused",
    "no_handler": "no handler takes its messages",
    "no_owner": "its partitions have no owner",
})  # fmt: skip

_REMEDIES = MappingProxyType({
    "quota": "a higher quota would help: {set} --qps N`",
    "concurrency": "a higher concurrency, or quicker handlers, would help: {set} --concurrency N`",
    "headroom": "more nodes, or quicker handlers, would help",
    "fairness": "more nodes, or quicker handlers, would help",
    "handlers_busy": "more nodes, or quicker handlers, would help",
    "higher_priority": "ageing gives lower priorities a share: {set} --ageing 0.1`",
    "ordered": "more keys, or quicker handlers, would help",
    "endpoint": "look at the endpoint: its answers are slow, or ask for pauses",
    "paused": "{resume} ends the pause",
    "no_handler": "add a handler for the project or the kind, or start nodes that have it: {plan} shows what each"
    " node handles",
    "no_owner": "{plan} shows the nodes: start one, or look at etcd",
})  # fmt: skip


def wait_words(reason: str) -> str:
    """Say why messages wait."""
    return _WORDS.get(reason, f"it waits for {reason}")


def remedy_of(reason: str, facts: StatusFacts) -> str:
    """Say what to do about a wait reason; empty if there is nothing to do."""
    project, env = facts.project, facts.env
    return _REMEDIES.get(reason, "").format(
        set=f"`evenlane topics set {project} --env {env}", resume=hint(f"topics resume {project}", env),
        plan=hint("plan", env),
    )  # fmt: skip
