"""The crash horizon: what of a stream may have been in flight when its last owner died (X11). Pure.

A feed has no delivery count, so a message that kills its process must be recorded before it starts, or it would go from
owner to owner for ever. Only what may have been in flight at a death has to be: the messages up to the *horizon*, the
end of the stream as its next owner found it after an unclean end. All later ones start at once. So a lone killer has
one death that nobody counts, and then one for each attempt: N + 1 in all.

The horizon is part of the next owner's first record, the fence, and of each record after it; a reader ignores it where
the watermark has reached it. An end is clean only if something says so: the log's last record, or the key that the
owner left in etcd when it released the partition. docs/adr/0022 has the rules and the proof by simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.core.lane.settle_record import LogState
    from evenlane.engine.core.ports import LaneState


def ended_cleanly(log: LogState, state: LaneState, epoch: int, released: Collection[int]) -> bool:
    """Whether nothing of the stream can have been in flight when its last owner ended: for the owner of `epoch`, who
    takes over. `released` are the epochs whose owners released the partition and left a key that says what still runs.
    """
    if log.epoch == epoch:
        return True  # the take-over is repeated: nothing has started since, and the log has the horizon already
    if log.unreadable:
        return False  # it may be the last record that cannot be read
    if not log.created:
        return state.first <= 1  # nobody has owned the stream; else the log was lost, as messages were removed
    return log.epoch in released or log.clean is True


def horizon_of(log: LogState, state: LaneState, *, clean: bool) -> int:
    """The highest sequence that may have been in flight at a death, 0 if none is left. `state` was asked of the
    stream's leader after the owner key was made: what arrived later was never another owner's.
    """
    horizon = log.horizon if clean else max(log.horizon, state.last)
    return horizon if horizon >= state.first else 0
