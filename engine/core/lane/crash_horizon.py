"""Computes the crash horizon: the part of a stream that may have been in flight when its last owner died (X11). Pure.

A feed has no delivery count. A message that kills its process must therefore be recorded before it starts, or it would
go from owner to owner for ever. Only messages that may have been in flight at a death need a record: those up to the
*horizon*, the end of the stream as the next owner found it after an unclean end. All later messages start at once. A
lone killer thus causes one death that isn't counted, and then one per attempt: N + 1 in all.

The horizon is part of the next owner's first record, the fence, and of each later record. A reader ignores it once the
watermark has reached it. An end is clean only if that is written down: in the log's last record, or in the etcd key
that the owner leaves when it releases the partition. docs/adr/0022 has the rules and the proof by simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.core.lane.log_state import LogState
    from evenlane.engine.core.ports import LaneState


def has_ended_cleanly(log: LogState, state: LaneState, epoch: int, released: Collection[int]) -> bool:
    """Whether no message of the stream can have been in flight when its last owner ended, as seen by the next owner, of
    `epoch`.

    `released` are the epochs whose owners released the partition and left a key that names the messages still running.
    """
    if log.epoch == epoch:
        return True  # a repeated takeover: nothing has started since, and the log has the horizon already
    if log.unreadable:
        return False  # the unreadable record may be the last one
    if not log.created:
        return state.first <= 1  # the stream was never owned; if messages were removed, it was, and its log is lost
    return log.epoch in released or log.clean is True


def horizon_of(log: LogState, state: LaneState, *, clean: bool) -> int:
    """The highest sequence that may have been in flight at a death; 0 if no such message is left.

    `state` must have been read from the stream's leader after the owner key was created: later messages never belonged
    to another owner.
    """
    horizon = log.horizon if clean else max(log.horizon, state.last)
    return horizon if horizon >= state.first else 0
