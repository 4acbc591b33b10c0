"""Condition of a node: its partitions, lease, load and lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.core.queue.positions import LanePosition


class Condition(NamedTuple):
    """Condition at one moment. `generation` is that of the plan it has carried out, `partitions` the number in the
    environment, `epochs` those of its own partitions, `positions` those that it knows of their lanes
    (docs/reference/positions.md). `lease_age_s` is the time since its last renewal was sent;
    `lease_left_s` the time until no handler may start, negative once it has passed. `settle_lag_s` is how long the
    oldest completion hasn't been durable; `loop_lag_s` the longest recent delay of the event loop. `slots_busy` are
    slots with a running handler; `in_flight` are messages with a handler, or about to have one.
    """

    leader: bool
    generation: int
    partitions: int
    epochs: Mapping[int, int]
    lease_age_s: float
    lease_left_s: float
    settle_lag_s: float
    index_messages: int
    payload_bytes: int
    payload_budget: int
    slots: int
    slots_busy: int
    in_flight: int
    pending_copies: int
    connected: bool
    loop_lag_s: float
    projects: int
    positions: Mapping[int, LanePosition]
