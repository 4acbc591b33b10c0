"""Figures as they are told: what isn't known stays unknown, and digits that are noise go."""

from __future__ import annotations


def to_thousandths(value: float | None) -> float | None:
    """To the millisecond, or a thousandth of a message a second."""
    return None if value is None else round(value, 3)


def to_six_digits(value: float | None) -> float | None:
    """More is noise in what was measured."""
    return None if value is None else float(f"{value:.6g}")
