"""Carries out `evenlane backlog purge` for one subscription.

Messages of partitions that no node owns are deleted by the command; if other subscriptions may need them, it settles
them instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.admin.backlog.delete_unowned import delete_waiting
from evenlane.engine.admin.backlog.drop_client import DropRequest
from evenlane.engine.admin.backlog.drop_rounds import DropTally, describe_rest, run_rounds
from evenlane.engine.admin.backlog.scan import list_subjects
from evenlane.engine.admin.backlog.settle_unowned import settle_waiting
from evenlane.engine.admin.session import open_session
from evenlane.engine.base.plural import format_count
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from evenlane.engine.admin.backlog.drop_rounds import OnProgress
    from evenlane.engine.base.config.settings import Settings


async def purge(
    settings: Settings, project: str, priority: str | None, on_progress: OnProgress = lambda _dropped: None
) -> dict[str, Any]:
    """Drop the project's present backlog, including delayed messages. Returns the result in JSON types. `on_progress`
    is called with the number of dropped messages now and then.

    Raises InvalidName, UnknownProject, Unreachable; EvenlaneError if some of the backlog couldn't be dropped.
    """
    async with open_session(settings, project) as outside:
        subjects = await list_subjects(
            outside.store, outside.cluster_config, project, outside.priorities(priority), subscriber=outside.subscriber
        )
        if not subjects and outside.accepted is None:
            raise outside.unknown()
        tally = DropTally({subject.lane.partition for subject in subjects}, on_progress)

        async def alone(partition: int, *, shared: bool) -> None:
            mine = [subject for subject in subjects if subject.lane.partition == partition]
            before = tally.by_command
            drop = settle_waiting if shared else delete_waiting

            def note(dropped: int) -> None:
                tally.by_command = before + dropped
                on_progress(tally.dropped)

            await drop(outside, partition, mine, note)

        await run_rounds(outside, tally, DropRequest(priority), alone)
        if tally.left:
            were = "was" if tally.dropped == 1 else "were"
            dropped = f"{format_count(tally.dropped, 'message')} of {project} {were} dropped"
            raise EvenlaneError(f"{dropped}, but {describe_rest(tally)}")
        return {
            "project": project, "env": settings.env, "subscription": settings.subscription,
            "others": await outside.list_others(), "priority": priority, "dropped": tally.dropped,
            "by_nodes": tally.by_nodes, "by_command": tally.by_command, "in_flight": tally.in_flight,
        }  # fmt: skip
