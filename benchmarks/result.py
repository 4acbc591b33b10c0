"""The result of a run of `benchmarks.throughput`: printed with its bars and the last recorded run, or recorded."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

from benchmarks.ratios import BARS, RATIOS, Record, Spread, compare, document, ratios_of

if TYPE_CHECKING:
    import argparse


class Result:
    def __init__(self, options: argparse.Namespace, figures: dict[str, list[float]]) -> None:
        self.figures, self.ratios, self._options = figures, ratios_of(figures), options

    def document(self) -> dict[str, object]:
        median = {name: statistics.median(values) for name, values in self.figures.items()}
        return {"options": vars(self._options), "median": median, "all": self.figures, "ratios": document(self.ratios)}

    def show(self) -> None:
        print(f"\n{'figure':34}{'median':>12}   each round")
        for name, values in self.figures.items():
            each = "  ".join(f"{one:,.1f}" if one < 100 else f"{one:,.0f}" for one in values)
            print(f"{name:34}{statistics.median(values):12,.1f}   {each}")
        print(f"\n{'ratio':34}{'median (least to most)':>26}   each round")
        for name, one in self.ratios.items():
            print(f"{name:34}{one!s:>26}   {'  '.join(f'{each:.2f}' for each in one.each)}")
        self._show_bars()
        print("\n" + "\n".join(compare(self.ratios, Record.read())))

    def _show_bars(self) -> None:
        print(f"\n{'bar':34}{'median':>12}")
        for bar in BARS:
            found = self.ratios.get(bar.what) or (self.figures.get(bar.what) and Spread(tuple(self.figures[bar.what])))
            if found:
                print(f"{bar.what:34}{found.median:12.2f}   {bar.verdict(found.median)}")

    def record(self) -> None:
        missing = sorted(RATIOS.keys() - self.ratios)
        if missing:
            sys.exit(f"Not recorded, since arms did not run: {', '.join(missing)}")
        Record.of(self.ratios).write()
        print("\nRecorded: later runs are compared with this one.", file=sys.stderr)
