"""The windows that reports are made for."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A window and the grains it is made of, in seconds. Windows begin at whole multiples of their length, UTC."""

    window_s: int
    grain_s: int


SPANS = {"5m": Span(300, 60), "1h": Span(3600, 300), "1d": Span(86_400, 3600)}
"""By the name that the command takes. Grains of the first serve all."""
FINEST_S = 60
