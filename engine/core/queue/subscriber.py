"""Decides which messages of the streams are a subscription's backlog, for those who read the streams alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.names import LANE_KINDS, SHARED_KINDS
from evenlane.engine.core.queue.subscription_filter import ALL_MESSAGES, SubscriptionFilter, is_of_another

if TYPE_CHECKING:
    from evenlane.engine.base.names import Kind, LaneId
    from evenlane.engine.core.lane.log_state import LogState
    from evenlane.engine.core.ports import Head


class Subscriber(NamedTuple):
    """The subscription whose backlog is read; by default the unnamed one. `chosen` are the messages of the shared
    streams that a named one gets.
    """

    is_named: bool = False
    chosen: SubscriptionFilter = ALL_MESSAGES

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of streams that have its backlog."""
        return LANE_KINDS if self.is_named else SHARED_KINDS

    def takes(self, lane: LaneId, head: Head) -> bool:
        """Whether the message is for the subscription."""
        if not self.is_named:
            return True
        if lane.kind == "again":
            return self.chosen.takes_retry(head.at)
        if lane.kind == "later":
            return self.chosen.takes_delayed(head.headers, head.at)
        return not is_of_another(head.headers)

    def must_restart(self, lane: LaneId, log: LogState) -> bool:
        """Whether the log says nothing of what is settled since the subscription was reset. Its own stream of retries
        isn't read again.
        """
        return lane.kind != "again" and log.reset < self.chosen.reset


UNNAMED = Subscriber()
