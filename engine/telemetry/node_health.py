"""How a node is: what it owns, what its lease is worth, how full it is, and how far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Condition(NamedTuple):
    """`generation` is that of the plan it has carried out, `partitions` how many the environment has, `epochs` by
    partition those that it owns. `lease_age_s` since its last renewal was sent, `lease_left_s` until nothing may start
    any more, less than 0 if that is so; `settle_lag_s` for how long the oldest end of a message isn't durable,
    `loop_lag_s` the longest delay of the event loop lately. `slots_busy` are those in which a handler runs, `in_flight`
    the messages with a handler or about to be.
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
