"""Whether what reports run on is installed: nodes go without it."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = ("pyspark", "pyarrow")  # PyArrow is what PySpark comes without, and misses only in the middle of its work


def missing() -> str | None:
    """A sentence that says what is missing, and how to get it; None if nothing is."""
    lacking = [name for name in _NEEDED if find_spec(name) is None]
    if not lacking:
        return None
    return (
        f"reports run on PySpark and PyArrow, and {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not"
        ' installed: pip install "evenlane[spark]"'
    )
