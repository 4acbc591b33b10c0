"""Replays a seed, `.venv/bin/python -m tests.simulation --seed 123 --trace`, or runs many, `--seeds 0:2000`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation import surroundings
from tests.simulation.world import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--seeds", default="0:200", help="run a range of seeds, FIRST:END")
    parser.add_argument("--trace", action="store_true", help="print every event")
    given = parser.parse_args()
    first, end = map(int, given.seeds.split(":")) if given.seed is None else (given.seed, given.seed + 1)
    totals: Counter[str] = Counter()
    began, failed = time.process_time(), 0
    gaps: list[float] = []
    with surroundings.replaced():
        for seed in range(first, end):
            result = simulate(seed, _print if given.trace else None)
            totals.update(result.counts)
            totals.update(steps=result.steps, virtual=int(result.virtual))
            gaps += result.gaps
            if result.broken is not None:
                failed += 1
                _print(f"seed {seed}: {result.broken}")
    spent = time.process_time() - began
    _print(f"{end - first} seeds, {failed} failed, {1000 * spent / (end - first):.1f} ms of CPU each")
    gaps.sort()
    if gaps:
        p50, p99 = (gaps[int(share * (len(gaps) - 1))] for share in (0.5, 0.99))
        _print(f"{len(gaps)} handoffs without fault: {p50:.3f} s p50, {p99:.3f} s p99, {gaps[-1]:.3f} s at most")
    _print("\n".join(f"{count:10} {name}" for name, count in sorted(totals.items())))
    return 1 if failed else 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


sys.exit(main())
