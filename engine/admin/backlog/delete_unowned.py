"""Drops messages of partitions that no node owns: the requesting process deletes them from their streams."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.admin.backlog.scan import iter_waiting, views
from evenlane.engine.cluster.owners import read_handoffs
from evenlane.engine.core.ports import LogMoved, Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.engine.admin.backlog.scan import LaneView
    from evenlane.engine.admin.session import AdminSession
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.wire.queue_subjects import Subject

_AT_ONCE = 256  # concurrent deletes; nats-server drops its whole queue of requests above 10,000


async def delete_waiting(
    outside: AdminSession, partition: int, subjects: Iterable[Subject], on_progress: Callable[[int], object]
) -> None:
    """Delete the messages that waited when the subjects were counted, except those that previous owners still handle.
    `on_progress` is called with the number of those that are deleted.

    Raises LogMoved if somebody has written to a settle log meanwhile: a new owner, or the creation of a subscription
    that needs the messages. Raises Lost, Refused, CoordinationError; messages deleted before stay deleted.
    """
    theirs = await read_handoffs(outside.etcd, outside.cluster, partition)
    subjects = list(subjects)
    positions = {each.lane: await _position_of(outside.store, each.lane) for each in subjects}
    known = await views(outside.store, subjects, outside.subscriber)
    deleted = 0
    for subject in subjects:
        view = known[subject.lane]
        async for page in iter_waiting(outside.store, subject, view):
            mine = [head.sequence for head in page if head.sequence not in theirs[subject.lane.kind]]
            if await _position_of(outside.store, subject.lane) != positions[subject.lane]:
                raise LogMoved(f"the settle log of {subject.lane.kind} {partition} has moved")
            await delete(outside.store, view, mine)
            deleted += len(mine)
            on_progress(deleted)


async def _position_of(store: Store, lane: LaneId) -> int:
    _, position = await store.read_log(lane)
    return position


async def delete(store: Store, view: LaneView, sequences: list[int]) -> None:
    """Delete messages of the stream that was read. Raises Lost if the stream has been replaced."""
    state = await store.state(view.id)
    if state.created != view.state.created or state.last < view.state.last:
        raise Lost(f"the stream of {view.id.kind} {view.id.partition} was replaced meanwhile")
    for start in range(0, len(sequences), _AT_ONCE):
        part = sequences[start : start + _AT_ONCE]
        await asyncio.gather(*(store.delete(view.id, sequence) for sequence in part))
