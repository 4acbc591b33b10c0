"""Arrival processes, each a seeded stream of instants in ns, and choices of a receiver for each instant.

Every process is given its generator (`random.Random`), one per tenant, so that removing a tenant leaves the arrivals of
all others unchanged.
"""

from __future__ import annotations

from itertools import accumulate, cycle
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


def stream_of(seed: int, *names: object) -> Random:
    """Return a separate generator for each tuple of names."""
    return Random("/".join(map(str, (seed, *names))))  # noqa: S311 - loads are to be repeated, not kept secret


def poisson(rng: Random, rate: float, start: int, end: int) -> Iterator[int]:
    """`rate` messages per second on average in [start, end) ns, each independent of all others."""
    at = float(start)
    while (at := at + rng.expovariate(rate) * SECOND) < end:
        yield int(at)


def uniform(rate: float, start: int, end: int) -> Iterator[int]:
    """`rate` messages per second in [start, end) ns, evenly spaced, the first at `start`."""
    count = 0
    while (at := start + int(count * SECOND / rate)) < end:
        yield at
        count += 1


def burst(count: int, at: int) -> Iterator[int]:
    """`count` messages at the same instant."""
    return iter([at] * count)


def zipf(count: int, exponent: float = 1.0) -> list[float]:
    """The shares of `count` receivers, the k-th in proportion to 1 / k**exponent; they sum to 1."""
    raw = [k**-exponent for k in range(1, count + 1)]
    total = sum(raw)
    return [share / total for share in raw]


def even(count: int) -> list[float]:
    """The equal shares of `count` receivers."""
    return [1 / count] * count


def chooser(rng: Random, shares: Sequence[float]) -> Iterator[int]:
    """Yield random receivers endlessly, each as often as its share says."""
    numbers, sums = range(len(shares)), list(accumulate(shares))
    while True:
        yield from rng.choices(numbers, cum_weights=sums, k=1_000)


def in_turn(count: int) -> Iterator[int]:
    """Yield the receivers in turn, endlessly."""
    return cycle(range(count))
