"""Checks whether the packages for reports are installed; nodes don't need them."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = ("pyspark", "pyarrow")  # PySpark doesn't depend on PyArrow, and misses it only in the middle of its work


def find_missing() -> str | None:
    """Return a sentence on missing packages and their installation; None if none is missing."""
    lacking = [name for name in _NEEDED if find_spec(name) is None]
    if not lacking:
        return None
    return (
        f"reports run on PySpark and PyArrow, and {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not"
        ' installed: pip install "evenlane[spark]"'
    )
