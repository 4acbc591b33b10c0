"""Reads a lane's settle log from the store, and locates unreadable records by stream and sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from evenlane.engine.base import names
from evenlane.engine.core.lane.log_state import LogState, fold
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.records import settle_record

if TYPE_CHECKING:
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.ports import Store

_log = structlog.get_logger(__name__)


class FoldedLog(NamedTuple):
    """The folded state of a log, and its position in the store (0 if it is empty)."""

    state: "LogState"
    position: int


async def read_settle_log(store: Store, lane: LaneId, epoch: int = 0) -> FoldedLog:
    """Read and fold the log of a lane; `epoch` as in `fold`. Raises Lost, Refused, UnknownVersion."""
    records, position = await store.read_log(lane)
    try:
        state = fold([record.body for record in records], epoch)
    except settle_record.UnknownVersion as error:
        found = records[error.index]
        stream = names.settled_stream(found.subject.split(".")[1])
        raise settle_record.UnknownVersion(error.record, error.index, stream, found.sequence) from None
    return FoldedLog(state, position)


def report_unreadable(lane: Lane, state: LogState) -> None:
    """Log how many records of the settle log were skipped."""
    if state.unreadable:
        _log.error(
            "the settle log holds records that are none: passed over", **lane_fields(lane), count=state.unreadable
        )
