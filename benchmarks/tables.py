"""Makes the tables of docs/explanation/benchmarks.md from runs of `benchmarks.throughput --save FILE`.

    python -m benchmarks.tables PURE.json COMPILED.json [--write]

Prints them, or replaces those in the page. `make bench` does the runs, and calls it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs/explanation/benchmarks.md"
BEGIN, END = "<!-- tables of make bench -->", "<!-- /tables of make bench -->"

ARMS = {
    "bare": "nats-py: a callback pull consumer and `ack()`, nothing else",
    "bare us of CPU a message": "its CPU time",
    "fetch": "nats-py: `fetch(500)` and `ack()`",
    "node": "Evenlane: fed, scheduled, handled and settled",
    "node us of CPU a message": "its CPU time",
    "routed": "the same in an application with handlers for eleven patterns",
    "routed us of CPU a message": "its CPU time",
    "typed": "the same with each body decoded as a msgspec Struct",
    "typed us of CPU a message": "its CPU time",
    "pinned": "the same behind 5,000 paused messages at the head of every partition",
    "pinned us of CPU a message": "its CPU time",
    "publish": "nats-py: a pipelined publish loop that only counts the acknowledgements",
    "puts": "`Producer.put_many`",
    "decision": "one decision of the scheduler among 3,000 busy queues",
    "idle node % of a core": "128 partitions with nothing to do",
    "idle server % of a core": "the nats-server under it",
}
BARS = {
    "node / bare": "0.95, compiled 1.3",
    "CPU a message, node / bare": "1.2, compiled 0.8",
    "node / fetch": "2",
    "routed / node": "0.97",
    "typed / node": "0.9",
    "pinned / node": "0.5",
    "puts / publish": "compiled 1.3",
}
WAYS = {
    "nats-py, fetch(1)": "`psub.fetch(1)`, `msg.ack()`",
    "nats-py, push callback": '`js.subscribe(subject, "workers", cb=...)`, `msg.ack()`',
    "FastStream, pull": "`@broker.subscriber(..., pull_sub=PullSub(batch_size=10))`",
    "FastStream, push": "`@broker.subscriber(subject, stream=...)`",
    "node": "Evenlane: a handler",
    "nats-py, js.publish": "`await js.publish(...)`, one after another",
    "FastStream, publish": "`await broker.publish(...)`, one after another",
    "single puts": "Evenlane: `await producer.put(...)`, one after another",
    "puts": "Evenlane: `await producer.put_many(...)`",
}


def _figure(name: str, value: float) -> str:
    if name == "decision" or "us of CPU" in name:
        return f"{value:.1f} us"
    return f"{value:.1f} %" if "%" in name else f"{round(value, -2):,.0f} msg/s"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def tables(pure: dict[str, Any], compiled: dict[str, Any]) -> str:
    """The tables in Markdown: arms, ratios, and the documented ways of other libraries."""
    runs = (pure, compiled)

    def figures(names: dict[str, str]) -> list[tuple[str, ...]]:
        both = {name: what for name, what in names.items() if all(name in run["median"] for run in runs)}
        return [(name, what, *(_figure(name, run["median"][name]) for run in runs)) for name, what in both.items()]

    ratios = [(name, BARS.get(name, ""), *(_spread(run, name) for run in runs)) for name in pure["ratios"]]
    options = pure["options"]
    how = (
        f"Both builds: {options['rounds']} rounds of {options['messages']:,} messages, with all "
        f"{options['partitions']} partitions on one node.\nThe compiled build ran right after the pure Python build."
    )
    return "\n\n".join([
        _table(("arm", "what it is", "pure", "compiled"), figures(ARMS)),
        _table(("ratio", "bar", "pure: median, least to most", "compiled"), ratios),
        how,
        _table(("way", "what it does", "pure", "compiled"), figures(WAYS)),
    ])  # fmt: skip


def _spread(run: dict[str, Any], name: str) -> str:
    one = run["ratios"][name]
    return f"{one['median']:.2f} ({one['least']:.2f} to {one['most']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="The tables of the page on benchmarks.")
    parser.add_argument("runs", nargs=2, type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    options = parser.parse_args()
    made = tables(*(json.loads(each.read_text()) for each in options.runs))
    if not options.write:
        print(made)
        return
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
