"""Plain output of `evenlane top` for pipes: one table after the other, without terminal codes."""

from __future__ import annotations

import asyncio
import shutil
import sys
from typing import TYPE_CHECKING, Any

from evenlane.engine.cli.top import view_state as chosen
from evenlane.engine.cli.top.table import NO_MATCH, NODES, TENANTS, rest, summary, table
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenlane.engine.cli.top.source import OverviewSource
    from evenlane.engine.cli.top.view_state import ViewState


async def follow(
    source: OverviewSource, choice: ViewState, interval_s: float, count: int | None, stop: asyncio.Event
) -> None:
    """Print `count` tables, without end if it is None. An error before the first table is raised; later errors are
    reported on stderr and retried.
    """
    clock = asyncio.get_running_loop().time
    due, printed = clock(), 0
    while not stop.is_set():
        try:
            document = await source.overview()
            chosen.check(choice, document)
        except EvenlaneError as error:
            if not printed:
                raise
            print(f"evenlane: {error}", file=sys.stderr)  # noqa: T201
        else:
            gap = [""] if printed else []
            print("\n".join([*gap, *page(document, choice, _room())]), flush=True)  # noqa: T201
            printed += 1
        if count is not None and printed >= count:
            return
        due = max(due + interval_s, clock())
        await _pause(stop, due - clock())


def page(document: Mapping[str, Any], choice: ViewState, room: int | None = None) -> Iterator[str]:
    """Yield one table, line by line: time, totals, tenants, nodes, notes."""
    yield f"{document['at']} {document['env']}: {summary(document)}"
    shown = [line._replace(first=True) for line in chosen.lines(document, choice)]  # each line is shown in full
    if shown:
        made = table(TENANTS, shown, room)
        yield from (made.header, *made.lines)
    elif document["tenants"]:
        yield NO_MATCH
    matching = len(chosen.tenants(document, choice._replace(limit=None)))
    if more := rest(document, shown, matching):
        yield more
    if document["nodes"]:
        made = table(NODES, document["nodes"], room)
        yield from (made.header, *made.lines)
    for note in document["notes"]:
        yield f"note: {note}"


def _room() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
