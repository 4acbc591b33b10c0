"""Drops unowned messages that other subscriptions may need: the requesting process settles them for one subscription,
in its settle logs, and they stay in their streams.

Each append is guarded by the log's position, so a node that takes the partition over at this moment either reads the
record or prevents it. The record repeats what the log says of its last owner: it begins no epoch, and says nothing of
messages in flight.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from evenlane.engine.admin.backlog.scan import iter_waiting, views
from evenlane.engine.cluster.owners import read_handoffs
from evenlane.engine.core.lane.log_state import LogState
from evenlane.engine.core.lane.settled_set import runs
from evenlane.engine.core.records.settle_record import SHARED_VERSION, UNOWNED_EPOCH, SettleRecord, encode
from evenlane.engine.core.wire.varint_runs import pack_runs
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.node.settle.settle_log_reader import read_settle_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from evenlane.engine.admin.backlog.scan import LaneView
    from evenlane.engine.admin.session import AdminSession
    from evenlane.engine.core.ports import Head, LaneState, Store
    from evenlane.engine.core.wire.queue_subjects import Subject

_MOST = 20_000  # sequences in a record, which must fit into a message however scattered they are


async def settle_waiting(
    outside: AdminSession, partition: int, subjects: Iterable[Subject], on_progress: Callable[[int], object]
) -> None:
    """Settle the messages that waited when the subjects were counted, except those that previous owners still handle.
    `on_progress` is called with the number of those that are settled.

    Raises LogMoved if a node has taken the partition over, and Lost, Refused, UnknownVersion, CoordinationError,
    EvenlaneError; messages settled before stay settled.
    """
    theirs = await read_handoffs(outside.etcd, outside.cluster, partition)
    subjects = list(subjects)
    known = await views(outside.store, subjects, outside.subscriber)
    settled = 0
    for lane, view in known.items():
        heads: list[Head] = []
        for subject in (each for each in subjects if each.lane == lane):
            async for page in iter_waiting(outside.store, subject, view):
                heads += [head for head in page if head.sequence not in theirs[lane.kind]]
        heads.sort(key=lambda head: head.sequence)
        for start in range(0, len(heads), _MOST):
            some = heads[start : start + _MOST]
            await settle(outside.store, view, some)
            settled += len(some)
            on_progress(settled)


async def settle(store: Store, view: LaneView, heads: Sequence[Head]) -> None:
    """Append a record that settles these messages, in the order of their sequences. Raises LogMoved, EvenlaneError."""
    log, position = await read_settle_log(store, view.id)
    state = await store.state(view.id)
    where = f"{view.id.kind} {view.id.partition}"
    if state.created != view.state.created or state.last < view.state.last:
        raise EvenlaneError(f"the stream of {where} was replaced meanwhile")
    if view.subscriber.must_restart(view.id, log):
        log = replace(log, created=state.created, settled=view.settled, reset=view.subscriber.chosen.reset)
    if log.created and log.created != state.created:
        raise EvenlaneError(f"the settle log of {where} belongs to an earlier stream: start a node")
    heads = [head for head in heads if head.sequence not in log.settled]  # it may have moved since they were found
    if not heads:
        return
    await store.append_log(view.id, encode(make_drop(log, state, heads)), position)


def make_drop(log: LogState, state: LaneState, heads: Sequence[Head]) -> SettleRecord:
    """Return the record that settles these messages, and changes nothing else for the next owner."""
    if not log.created:  # nobody has ever owned the lane, unless its log was lost with what was removed
        log = LogState(UNOWNED_EPOCH, created=state.created, clean=state.first <= 1)
    watermark = log.settled.watermark
    last = heads[-1]
    # A stream that loses these messages, and gives their sequences to others, must not pass for this one.
    high, high_at = max((log.high, log.high_at), (last.sequence, last.at))
    return SettleRecord(
        SHARED_VERSION, log.epoch, log.number, log.created, high, high_at, watermark,
        pack_runs(runs([head.sequence for head in heads]), watermark), horizon=log.horizon, clean=log.clean,
        lease=log.lease, reset=log.reset,
    )  # fmt: skip
