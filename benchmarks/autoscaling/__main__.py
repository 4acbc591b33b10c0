"""Simulates a day under several scalers.

    python -m benchmarks.autoscaling [--hours H] [--seed N] [--trace FILE] [--json]

The trace is a CSV file with a header and lines of `time,count`, at even distances: its form is repeated, at a mean load
of 30 slots. The scalers of the product are run as they are; everything around them is a model: a slot takes one message
at a time in the order in which the quotas let them go, and a node is ready 45 s after it was asked for.
"""

from __future__ import annotations

import argparse
import csv
import json
from datetime import datetime
from pathlib import Path

from benchmarks.autoscaling.day import Day, blocked_day, day_of_counts, usual_day
from benchmarks.autoscaling.fleet import Fleet, Result
from benchmarks.autoscaling.scalers import MOST, ByBacklog, Clairvoyant, Fixed, Product
from evenlane.engine.control.scaling.policy import Need, Rules

CLAIRVOYANT = "clairvoyant"


def compare(day: Day, seed: int) -> dict[str, Result]:
    scalers = {
        "need, p99 wait 2s": Product(Need()),
        "rules": Product(Rules()),
        "by backlog": ByBacklog(),
        f"always {MOST} nodes": Fixed(MOST),
        CLAIRVOYANT: Clairvoyant(day),
    }
    return {name: Fleet(day, scaler, seed=seed).play() for name, scaler in scalers.items()}


def figures(results: dict[str, Result]) -> dict[str, dict[str, float]]:
    ideal = results[CLAIRVOYANT].node_hours
    return {
        name: {
            "minutes in target %": round(100 * result.in_target, 2),
            "node hours": round(result.node_hours, 1),
            "of clairvoyant": round(result.node_hours / ideal, 2),
            "most nodes": max(result.nodes),
            "changes": len(result.changes),
        }
        for name, result in results.items()
    }


def read_counts(path: Path) -> list[tuple[float, float]]:
    """Read `time,count`; the time is in s, or in ISO 8601."""
    with path.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if row][1:]
    times = [_seconds(time) for time, *_ in rows]
    return [(at - times[0], float(count)) for at, (_, count, *_) in zip(times, rows, strict=True)]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()  # differences count, whatever the zone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    days = {"a usual day": usual_day(options.hours, options.seed), "quota-blocked": blocked_day(options.hours)}
    if options.trace is not None:
        days = {options.trace.name: day_of_counts(read_counts(options.trace), 30.0, options.seed)}
    found = {title: figures(compare(day, options.seed)) for title, day in days.items()}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for title, table in found.items():
        columns = [*next(iter(table.values()))]
        print(f"\n| {title} | {' | '.join(columns)} |")
        print(f"| --- |{' --- |' * len(columns)}")
        for name, row in table.items():
            print(f"| {name} | {' | '.join(f'{value:,}' for value in row.values())} |")


if __name__ == "__main__":
    main()
