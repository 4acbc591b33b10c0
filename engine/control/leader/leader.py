"""The leader's work put together: accepting wishes, placing partitions, moving shares, forgetting what is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.control.leader.duties import together
from evenlane.engine.control.leader.group_collector import Emptying
from evenlane.engine.control.leader.placement_controller import Placing
from evenlane.engine.control.leader.quota_lender import Giving
from evenlane.engine.control.leader.topic_controller import Acceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import Facts
    from evenlane.engine.cluster.connections import Connect
    from evenlane.engine.cluster.record_reader import Records
    from evenlane.engine.cluster.topics.topic_cache import TopicBook
    from evenlane.ring.coordination import Coordination


def leader(
    holder: str,
    coordination: Coordination,
    connect: Connect,
    settings: Settings,
    facts: Facts,
    book: TopicBook,
    records: Records,
    node_lease: Callable[[], int],
    *,
    shares: bool = True,
) -> Acceptor:
    """Stands for election as `holder`, and does all of it while it leads. Without `shares` none are moved."""
    env = settings.env

    async def emptied(project: str, groups: Collection[int], number: int) -> bool:
        return await acceptor.emptied(project, groups, number)

    placing = Placing(coordination, env, facts, book, settings.placement, records)
    emptying = Emptying(
        coordination, env, facts.partitions, book, lambda: connect.questions(settings, f"{holder} empties"), emptied,
        settings.duplicate_window,
    )  # fmt: skip
    giving = Giving(lambda: connect.questions(settings, f"{holder} shares"), env, settings.lease_ttl)
    duties = [placing.serve, emptying.serve, *([giving.serve] if shares else [])]
    acceptor = Acceptor(
        coordination, env, facts, holder, int(settings.lease_ttl), beside=together(*duties), node_lease=node_lease,
        last_good=book.get,
    )  # fmt: skip
    return acceptor
