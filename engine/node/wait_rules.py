"""The rules that keep a queue's messages from starting, in the order in which they are checked (X8).

The node decides by the same rules, each where it is cheapest: the registry puts queues of withheld and paused projects
to sleep, `OwnedLanes` keeps queues from the scheduler, the dispatcher checks the lease for each message, and the
scheduler has rules of its own. `WaitRules.reason` returns the reason of the first rule that applies.
`tests/unit/node/test_wait_rules.py` shows that the node and these rules agree: while handlers are free, the head of a
queue starts if and only if no rule applies. Conditions that hold up the whole node have no rule: `evenlane why` reports
a lagging settle log and too many pending copies as notes. A queue with more than a thousand suspects is suspended
without a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.queues.registry import NO_HANDLER

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.queues.owned_lanes import OwnedLanes
    from evenlane.engine.node.queues.registry import QueueRegistry
    from evenlane.engine.node.signals.lease_trust import LeaseTrust


class WaitRules:
    """Answers why a queue waits, in the reason words of the public surface: `paused`, `no_owner`, `higher_priority`,
    `ordered`, `quota` and so on.
    """

    def __init__(
        self, queues: QueueRegistry, trust: LeaseTrust, lanes: OwnedLanes, scheduler: Scheduler[Queue]
    ) -> None:
        self._rules: tuple[Callable[[Queue, int], str | None], ...] = (
            lambda queue, _: queues.explain_withheld(queue.project),
            lambda queue, _: "paused" if queue.rules.asleep else None,
            lambda _, now: trust.wait_reason(now),
            lambda queue, _: lanes.wait_reason(queue),
            lambda queue, _: NO_HANDLER if queue.unhandled and not (queue.ready or queue.behind) else None,
            lambda queue, _: "ordered" if queue.is_behind_key else None,
            scheduler.wait_reason,
        )

    def reason(self, queue: Queue) -> str | None:
        """The reason why the head of a queue with a backlog waits; None if it may start at once, or is being read."""
        now = now_ns()
        return next((reason for rule in self._rules if (reason := rule(queue, now)) is not None), None)
