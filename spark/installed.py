"""Checks whether the packages for reports are installed; nodes don't need them."""

from __future__ import annotations

from importlib.util import find_spec

# PySpark depends neither on PyArrow nor on pandas, and misses them only in the middle of its work.
_NEEDED = ("pyspark", "pyarrow", "pandas", "polars", "platformdirs")


def find_missing() -> str | None:
    """Return a sentence on missing packages and their installation; None if none is missing."""
    lacking = [name for name in _NEEDED if find_spec(name) is None]
    if not lacking:
        return None
    *first, last = lacking
    named = f"{', '.join(first)} and {last} are" if first else f"{last} is"
    return (
        f'reports run on PySpark, PyArrow, pandas and Polars, and {named} not installed: pip install "evenlane[spark]"'
    )
