"""Carries out `evenlane backlog purge` and `cancel`: asks owners, deletes unowned messages, reports the result.

A partition's owner drops its messages itself, since it may have them ready for a handler. Messages of unowned
partitions are deleted by the command. Owners are read before and after: a partition whose owner has changed is done
again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.admin.backlog.delete_unowned import delete, delete_waiting
from evenlane.engine.admin.backlog.drop_client import DropRequest, DropTarget, gather
from evenlane.engine.admin.backlog.scan import iter_waiting, list_subjects, map_concurrently, views
from evenlane.engine.admin.session import open_session
from evenlane.engine.base import names
from evenlane.engine.base.plural import format_count
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.owners import read_handoffs, read_owners
from evenlane.engine.core.wire.header_values import message_id
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.admin.backlog.drop_client import DropProgress
    from evenlane.engine.admin.backlog.scan import LaneView
    from evenlane.engine.admin.session import AdminSession
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.ports import Head
    from evenlane.engine.core.wire.queue_subjects import Subject

    OnProgress = Callable[[int], object]

_TIMEOUT_S = 15.0  # without progress; a node that has crashed stays the owner until its lease ends
_SILENT_S = 5.0  # a working node reports every second
_PAUSE_S = 0.5


class CancelTarget(NamedTuple):
    """A message to cancel."""

    subject: Subject
    view: LaneView
    head: Head

    @property
    def target(self) -> DropTarget:
        lane = self.subject.lane
        return DropTarget(lane.kind, lane.partition, self.head.sequence, self.head.at)


class PurgeTally:
    """Running totals. `left` maps unfinished partitions to the reason."""

    def __init__(self, partitions: set[int], on_progress: OnProgress = lambda _dropped: None) -> None:
        self.on_progress = on_progress
        self.left = dict.fromkeys(partitions, "")
        self.by_nodes = self.by_command = 0
        self.busy: dict[str, int] = {}  # messages that were being handled, by node

    @property
    def dropped(self) -> int:
        return self.by_nodes + self.by_command

    @property
    def in_flight(self) -> int:
        return sum(self.busy.values())

    def add(self, node: str, word: DropProgress | None, owned: dict[int, str]) -> None:
        """Add the last report of a node, None if it gave none."""
        why = (
            f"node {node} doesn't answer" if word is None or not word.done else f"node {node} reported: {word.problem}"
        )
        if word is not None:
            self.by_nodes += word.dropped
            self.busy[node] = word.busy
            for partition in word.partitions:
                self.left.pop(partition, None)
        for partition in self.left:
            if owned.get(partition) == node:
                self.left[partition] = why


async def purge(
    settings: Settings, project: str, priority: str | None, on_progress: OnProgress = lambda _dropped: None
) -> dict[str, Any]:
    """Drop the project's present backlog, including delayed messages. Returns the result in JSON types. `on_progress`
    is called with the number of dropped messages now and then.

    Raises InvalidName, UnknownProject, Unreachable; EvenlaneError if some of the backlog couldn't be dropped.
    """
    async with open_session(settings, project) as outside:
        subjects = await list_subjects(outside.store, outside.cluster_config, project, outside.priorities(priority))
        if not subjects and outside.accepted is None:
            raise outside.unknown()
        tally = PurgeTally({subject.lane.partition for subject in subjects}, on_progress)

        async def alone(partition: int) -> None:
            mine = [subject for subject in subjects if subject.lane.partition == partition]
            before = tally.by_command
            tally.by_command += await delete_waiting(
                outside, partition, mine, lambda deleted: on_progress(tally.by_nodes + before + deleted)
            )

        await _rounds(outside, tally, DropRequest(priority), alone)
        if tally.left:
            were = "was" if tally.dropped == 1 else "were"
            dropped = f"{format_count(tally.dropped, 'message')} of {project} {were} dropped"
            raise EvenlaneError(f"{dropped}, but {_describe_rest(tally)}")
        return {
            "project": project, "env": settings.env, "priority": priority, "dropped": tally.dropped,
            "by_nodes": tally.by_nodes, "by_command": tally.by_command, "in_flight": tally.in_flight,
        }  # fmt: skip


async def cancel(settings: Settings, project: str, given_id: str) -> dict[str, Any]:
    """Drop the message with this id, wherever it waits. Returns the result in JSON types.

    Raises InvalidName, UnknownProject, Unreachable; EvenlaneError if the message doesn't wait.
    """
    names.check_id(given_id)
    async with open_session(settings, project) as outside:
        found = await _find(outside, given_id)
        tally = PurgeTally({each.subject.lane.partition for each in found})

        async def alone(partition: int) -> None:
            mine = [each for each in found if each.subject.lane.partition == partition]
            await _cancel_unowned(outside, partition, mine, tally)

        await _rounds(outside, tally, DropRequest(targets=[each.target for each in found]), alone)
        if not tally.dropped:
            raise _explain_not_cancelled(outside, given_id, tally)
        return {"project": project, "env": settings.env, "id": given_id, "cancelled": True, "messages": tally.dropped}


async def _rounds(
    outside: AdminSession, tally: PurgeTally, ask: DropRequest, alone: Callable[[int], Awaitable[None]]
) -> None:
    """Process each partition by its owner, or by `alone` if it has none. Partitions that fail stay in `left`; so do
    those without an owner while there are named subscriptions, which may still need the messages.
    """
    clock = asyncio.get_running_loop().time
    progress, left = clock(), len(tally.left)
    while tally.left and clock() - progress < _TIMEOUT_S:
        owned = await _owners(outside)
        if any(partition in owned for partition in tally.left):
            await _ask(outside, tally, ask, owned)
        unowned = [partition for partition in tally.left if partition not in owned]
        if unowned and (others := await outside.list_subscriptions()):
            held = (
                f"no node owns them, and other subscriptions ({', '.join(others)}) may need the messages: start a node"
            )
            tally.left |= dict.fromkeys(unowned, held)
            if len(unowned) == len(tally.left):
                return
            unowned = []
        for partition in unowned:
            await alone(partition)
        owned = await _owners(outside) if unowned else {}
        for partition in unowned:
            if partition not in owned:
                del tally.left[partition]
        if len(tally.left) < left:
            progress, left = clock(), len(tally.left)
        if tally.left:
            await asyncio.sleep(_PAUSE_S)


async def _owners(outside: AdminSession) -> dict[int, str]:
    return await read_owners(outside.etcd, outside.env, outside.cluster_config.partitions)


async def _ask(outside: AdminSession, tally: PurgeTally, ask: DropRequest, owned: dict[int, str]) -> None:
    nodes = {owned[partition] for partition in tally.left if partition in owned}
    connection = connections.bus(outside.settings, "evenlane backlog")
    try:
        await connection.open()
        words = await gather(
            connection, outside.env, outside.project, ask, nodes, _SILENT_S,
            lambda dropped: tally.on_progress(tally.dropped + dropped),
        )  # fmt: skip
    finally:
        await connection.close()
    for node in nodes:
        tally.add(node, words.get(node), owned)


async def _find(outside: AdminSession, given_id: str) -> list[CancelTarget]:
    """Find all messages with this id that wait or are being handled: briefly, a message and its retry."""
    store, project = outside.store, outside.project
    subjects = await list_subjects(store, outside.cluster_config, project, outside.cluster_config.priorities)
    if not subjects and outside.accepted is None:
        raise outside.unknown()
    known = await views(store, subjects)
    given = f"{project}:{given_id}".encode()

    def is_it(stream: str, head: Head) -> bool:
        if given not in head.headers and b"\r\nNats-Msg-Id:" in head.headers:
            return False  # quick check that skips most messages without parsing their headers
        return message_id(project, stream, head.sequence, head.at, head.headers) == given_id

    async def one(subject: Subject) -> list[CancelTarget]:
        view, stream = known[subject.lane], names.stream(outside.env, subject.lane)
        pages = iter_waiting(store, subject, view)
        return [CancelTarget(subject, view, head) async for page in pages for head in page if is_it(stream, head)]

    return [found for some in await map_concurrently(subjects, one) for found in some]


async def _cancel_unowned(outside: AdminSession, partition: int, found: list[CancelTarget], tally: PurgeTally) -> None:
    theirs = await read_handoffs(outside.etcd, outside.env, partition)
    for each_one in found:
        sequence = each_one.head.sequence
        if sequence in theirs[each_one.subject.lane.kind]:
            tally.busy["a previous owner"] = 1
        else:
            await delete(outside.store, each_one.view, [sequence])
            tally.by_command += 1


def _explain_not_cancelled(outside: AdminSession, given_id: str, tally: PurgeTally) -> EvenlaneError:
    message = f"message {given_id!r} of {outside.project}"
    if tally.in_flight:
        where = ", ".join(sorted(node for node, count in tally.busy.items() if count))
        return EvenlaneError(f"{message} is being handled by {where} and can't be cancelled any more")
    if tally.left:
        return EvenlaneError(f"{message} was not cancelled: {_describe_rest(tally)}")
    return EvenlaneError(
        f"{message} isn't waiting in environment {outside.env!r}: it was handled, dropped or dead-lettered,"
        " or was never put"
    )


def _describe_rest(tally: PurgeTally) -> str:
    shown = ", ".join(map(str, sorted(tally.left)[:8])) + (", ..." if len(tally.left) > 8 else "")
    why = "; ".join(sorted({each for each in tally.left.values() if each})) or "their owners kept changing"
    return f"partitions {shown} could not be processed ({why}): try again"
