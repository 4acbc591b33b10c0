"""Backoff of retries: exponential, capped, with jitter (K2)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base` and `cap` in seconds; `jitter` is the fraction by which a delay may be longer or shorter."""

    base: float = 1.0
    factor: float = 2.0
    cap: float = 600.0
    jitter: float = 0.1


def retry_delay_s(backoff: Backoff, attempt: int, unit_random: float) -> float:
    """Seconds from the failure of the `attempt`-th attempt (the first is 1) to the next.

    min(cap, base x factor^(attempt - 1)), spread evenly over 1 - jitter .. 1 + jitter by `unit_random` in [0, 1). The
    spread comes after the cap, so that messages which have all reached the cap don't return in one wave: the longest
    delay is cap x (1 + jitter). Raises ValueError for an attempt below 1.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    try:
        delay = min(backoff.cap, backoff.base * backoff.factor ** (attempt - 1))
    except OverflowError:
        delay = backoff.cap
    return delay * (1.0 + backoff.jitter * (2.0 * unit_random - 1.0))
