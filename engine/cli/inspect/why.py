"""Command `evenlane why`: explains why a project's messages wait, and forecasts when they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlane.engine.cli.inspect.why_positions import show_positions
from evenlane.engine.cli.options import CommonOptions, Json, common_of_subscription, seconds
from evenlane.engine.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

_PIPE_WIDTH = 200

_Priority = Annotated[str | None, typer.Option("--priority", metavar="P", help="Show only this priority.")]
_Within = Annotated[
    float | None,
    typer.Option(
        "--within",
        parser=seconds,
        metavar="DURATION",
        help="Also show the quota that clears the backlog within this time.",
    ),
]
_Positions = Annotated[
    bool, typer.Option("--positions", help="Also show how far each queue has come; --json always does.")
]


@common_of_subscription
def why(
    given: CommonOptions,
    project: Annotated[str, typer.Argument(metavar="PROJECT")],
    *,
    priority: _Priority = None,
    within: _Within = None,
    positions: _Positions = False,
    as_json: Json = False,
) -> None:
    """Explain why a project's messages wait, how many and how long, and when they will be gone.

    Asks the running nodes. Totals and forecast are the project's, even with --priority. Delayed messages count if they
    are due within the next hour. The documentation describes each reason and its remedy under "Why is this waiting?".

    Example:
      evenlane why acme
      evenlane why acme --priority high --json
      evenlane why acme --within 10m
      evenlane why acme --positions
    """
    settings = given.load_shared().settings
    from evenlane.engine.base.log_setup import setup
    from evenlane.engine.runtime.run_loop import run_loop

    setup(settings.log_format, settings.log_level)
    from evenlane.engine.admin.why import client

    answer: dict[str, Any] = run_loop(
        client.why(settings, project, priority=priority, within=within, positions=positions or as_json)
    )
    if as_json:
        print_json(answer)
    else:
        _show(answer)


def _show(answer: dict[str, Any]) -> None:
    from rich.console import Console

    from evenlane.engine.core.stats.forecast import format_spoken
    from evenlane.engine.core.status.lines import status_lines

    oldest = answer["oldest_seconds"]
    since = f", the oldest for {format_spoken(oldest)}" if oldest is not None else ""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    whose = f" for subscription {answer['subscription']!r}" if answer["subscription"] else ""
    console.print(
        f"{answer['project']} in {answer['env']}{whose}: {answer['backlog']:,} wait{since};"
        f" {answer['in_flight']:,} in flight",
        soft_wrap=True,
    )
    for line in status_lines(answer):
        console.print(line, soft_wrap=True)
    console.print(_table(answer))
    for line in _lines(answer):
        console.print(line, soft_wrap=True)
    if "positions" in answer:
        for part in show_positions(answer["positions"]):
            console.print(part, soft_wrap=isinstance(part, str))


def _table(answer: dict[str, Any]) -> Table:
    from rich import box
    from rich.table import Table

    from evenlane.engine.core.stats.forecast import format_spoken

    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("PRIORITY", "WAITING", "OLDEST", "IN FLIGHT", "NOT DUE", "WAITS FOR (GROUPS)"):
        numbers = column not in {"PRIORITY", "WAITS FOR (GROUPS)"}
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for part in answer["priorities"]:
        oldest = part["oldest_seconds"]
        reasons = ", ".join(f"{each['reason']} ({each['groups']:,})" for each in part["reasons"])
        table.add_row(
            part["priority"], f"{part['waiting']:,}", "-" if oldest is None else format_spoken(oldest),
            f"{part['in_flight']:,}", f"{part['delayed']:,}", reasons or "-",
        )  # fmt: skip
    return table


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    explained = set()
    for part in answer["priorities"]:
        for each in part["reasons"]:
            if each["reason"] == "not_due":
                yield f"not_due ({part['priority']}): {each['sentence']}"
            elif each["reason"] not in explained:
                explained.add(each["reason"])
                yield f"{each['reason']}: {each['sentence']}"
    yield from (f"waited: {part['waited_sentence']}" for part in answer["priorities"] if part["waited_sentence"])
    forecast = answer["forecast"]
    yield f"rates: {answer['rates']['sentence']}"
    yield f"forecast: {forecast['sentence']}"
    if "resumed_sentence" in forecast:
        yield f"          {forecast['resumed_sentence']}"
    if "within_sentence" in forecast:
        yield f"within: {forecast['within_sentence']}"
        if forecast["command"]:
            yield f"        {forecast['command']}"
    for note in answer["notes"]:
        yield f"note: {note}"
