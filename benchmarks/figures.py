"""Figures on stdout, beside the bars that they are measured by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def show(figures: Mapping[str, float], most: Mapping[str, float], *, as_json: bool) -> None:
    """`most` holds the bars: what has one is to be no larger."""
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        bar = most.get(name)
        verdict = "" if bar is None else f"  at most {bar:g}: {'ok' if value <= bar else 'MISSED'}"
        print(f"{name:20} {value:12,.3f}{verdict}")
