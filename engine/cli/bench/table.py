"""Output of `evenlane bench`: a table of the arms' figures, a table of the bars, and notes."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.report import Bar, Report

_PIPE_COLUMNS = 200  # a pipe has no width, so lines aren't broken
_HEADINGS = (30, 15, 9)  # maximum lengths of a heading's lines, from the most readable to the narrowest


def show(report: Report, about: str) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_COLUMNS)
    where = "on the simulator" if report.where == "simulator" else "on a real nats-server"
    where += f" over {report.nodes} nodes" if report.nodes > 1 else ""
    console.print(Text(f"\n{report.scenario} {where}: {about}", style="bold"))
    for table in _figures(report, console.width):
        console.print(table)
    console.print(_bars(report))
    for note in report.notes:
        console.print(Text(f"- {note}"))
    console.print(Text(f"seed {report.seed}, rounds {report.rounds}, {report.seconds:.1f} s"))


def _figures(report: Report, width: int) -> list[Table]:
    """Build the table with a row per figure and a column per arm, split into equal parts if it is too wide."""
    arms = list(report.arms.items())
    for count in range(1, len(arms) + 1):
        size = -(-len(arms) // count)
        parts = [dict(arms[first : first + size]) for first in range(0, len(arms), size)]
        for heading in _HEADINGS:
            if max(_width(part, heading) for part in parts) <= width:
                return [_table(part, heading) for part in parts]
    return [_table(dict([arm]), min(_HEADINGS)) for arm in arms]


def _table(arms: Mapping[str, Figures], heading: int) -> Table:
    table = Table()
    table.add_column("", no_wrap=True)
    for lines in _wrap_headings(arms, heading):
        table.add_column("\n".join(lines), justify="right", no_wrap=True)
    for name in _names(arms):
        table.add_row(_format_name(name), *(_number(figures.get(name)) for figures in arms.values()))
    return table


def _width(arms: Mapping[str, Figures], heading: int) -> int:
    """Return the table's width, including the three columns that rich puts around each cell."""
    names = max((len(_format_name(name)) for name in _names(arms)), default=0)
    cells = [
        max(len(cell) for cell in (*lines, *map(_number, figures.values())))
        for lines, figures in zip(_wrap_headings(arms, heading), arms.values(), strict=True)
    ]
    return 1 + sum(3 + each for each in (names, *cells))


def _wrap_headings(arms: Mapping[str, Figures], heading: int) -> list[list[str]]:
    """Wrap the arms' names to about this length, without breaking words."""
    return [wrap(arm, heading, break_long_words=False, break_on_hyphens=False) for arm in arms]


def _names(arms: Mapping[str, Figures]) -> list[str]:
    return list(dict.fromkeys(name for figures in arms.values() for name in figures))


def _format_name(name: str) -> str:
    return name.replace("_", " ")


def _bars(report: Report) -> Table:
    broker = report.where == "broker"
    table = Table("bar", "of")
    for column in ("value", "limit", *(("simulator", "scenario's limit") if broker else ())):
        table.add_column(column, justify="right")
    table.add_column("")
    for bar in report.bars:
        cells = [bar.name, bar.arm, _number(bar.value), f"{bar.sign} {_number(bar.limit)}"]
        if broker:
            limit = "" if bar.scenario_limit is None else f"{bar.sign} {_number(bar.scenario_limit)}"
            cells += [_number(bar.simulator) if bar.scenario_limit is not None else "", limit]
        table.add_row(*cells, _verdict(bar))
    return table


def _verdict(bar: Bar) -> Text:
    """Return the verdict. For a control, ok means that it fails where the product must not."""
    if bar.is_met:
        return Text("ok", style="green")
    return Text("missed", style="bold red" if bar.arm == "product" else "yellow")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
