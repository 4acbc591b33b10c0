"""Prints figures with their bars."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def show(figures: Mapping[str, float], most: Mapping[str, float], *, as_json: bool) -> None:
    """Print figures. `most` has the bars: upper bounds of some figures."""
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        bar = most.get(name)
        verdict = "" if bar is None else f"  at most {bar:g}: {'ok' if value <= bar else 'MISSED'}"
        print(f"{name:20} {value:12,.3f}{verdict}")
