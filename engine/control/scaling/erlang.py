"""How many nodes keep the waits for slots short: Erlang's delay formula.

A node is a queue with c servers, its slots. Messages arrive at random, at a slots' worth of work (the offered load, in
erlangs), and a handler takes h seconds on average. Then a message waits for longer than t with probability

    P(W > t) = C(c, a) exp(-(c - a) t / h)

where C(c, a), Erlang's C formula, is the probability that all slots are busy (A. K. Erlang, 1917; L. Kleinrock,
Queueing Systems, 1975, 3.4 and 5.7). It holds for exponential handler times; with a long tail the waits are longer. The
measured demand contains the backlog that waits for slots. So if the formula gives too few nodes, the next look shows
it.
"""

from __future__ import annotations

import math

IMBALANCE = 1.1
"""The load of the fullest node over the mean: partitions are placed by quotas, and loads differ."""


def wait_exceeds(slots: int, offered: float, handling_s: float, wait_s: float) -> float:
    """Return the probability that a message waits for a slot for longer than `wait_s`. `offered` is in slots."""
    if offered <= 0:
        return 0.0
    if offered >= slots:
        return 1.0
    blocked = 1.0  # Erlang's B formula, by its recursion over the number of slots
    for count in range(1, slots + 1):
        blocked = offered * blocked / (count + offered * blocked)
    delayed = blocked / (1 - offered / slots * (1 - blocked))
    return delayed * math.exp(-(slots - offered) * wait_s / handling_s) if handling_s > 0 else delayed


def nodes_needed(demand: float, slots: int, handling_s: float, quantile: float, wait_s: float, most: int) -> int:
    """Return the smallest number of nodes, 1 to `most`, with at most 1 - `quantile` of the messages waiting for longer
    than `wait_s`; `most` + 1 if none of these is enough. `demand` is that of all nodes together, in slots.
    """
    low, high = 1, max(1, most) + 1
    while low < high:
        nodes = (low + high) // 2
        if wait_exceeds(slots, IMBALANCE * demand / nodes, handling_s, wait_s) <= 1 - quantile:
            high = nodes
        else:
            low = nodes + 1
    return low
