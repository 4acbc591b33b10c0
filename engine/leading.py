"""The leader's work put together: accepting wishes, placing partitions, moving shares, forgetting what is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.acceptor import Acceptor
from engine.duties import together
from engine.emptied.emptying import Emptying
from engine.placing import Placing
from engine.shares.giving import Giving

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from engine.clients import Connect
    from engine.facts import Facts
    from engine.records import Records
    from engine.settings import Settings
    from engine.topics import TopicBook
    from ring.coordination import Coordination


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
