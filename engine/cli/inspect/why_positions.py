"""Shows the positions of a project's queues, for `evenlane why --positions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

_MOST = 50  # rows
_COLUMNS = ("priority", "group", "partition", "epoch", "node", "settled", "head", "next", "end", "waiting", "in_flight")


def show_positions(positions: dict[str, Any]) -> Iterator[Table | str]:
    """Yield what to print: a table, and a line about the queues that it leaves out."""
    from rich import box
    from rich.table import Table

    queues = positions["queues"]
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in _COLUMNS:
        is_text = column in {"priority", "node"}
        table.add_column(column.upper().replace("_", " "), justify="left" if is_text else "right", overflow="fold")
    for queue in queues[:_MOST]:
        table.add_row(*(_format(queue[column]) for column in _COLUMNS))
    yield table if queues else "positions: no node has a queue of the project"
    if left_out := positions["left_out"] + len(queues[_MOST:]):
        yield f"positions: {left_out:,} more queues are left out"


def _format(value: str | int | None) -> str:
    return "-" if value is None else str(value)
