"""Windows of reports."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A window and its grains, in seconds. Windows start at multiples of their length, UTC."""

    window_s: int
    grain_s: int


SPANS = {"5m": Span(300, 60), "1h": Span(3600, 300), "1d": Span(86_400, 3600)}
"""By the name used on the command line. Grains of the first one serve all."""
FINEST_S = 60
