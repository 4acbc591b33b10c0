"""Rounds figures for output: unknown values stay unknown, and insignificant digits are dropped."""

from __future__ import annotations


def to_thousandths(value: float | None) -> float | None:
    """Round to the millisecond, or to a thousandth of a message per second."""
    return None if value is None else round(value, 3)


def to_six_digits(value: float | None) -> float | None:
    """Round to six significant digits; measurements have no more."""
    return None if value is None else float(f"{value:.6g}")
