"""How `evenlane bench` shows a report: a table of the arms' figures, one of the bars, and what to know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from engine.scenarios.report import Bar, Report

_PIPE_COLUMNS = 200  # a pipe has no width: lines stay whole


def show(report: Report, about: str) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_COLUMNS)
    where = "on the simulator" if report.where == "simulator" else "on a real nats-server"
    console.print(Text(f"\n{report.scenario} {where}: {about}", style="bold"))
    figures = _figures(report)
    if console.measure(figures, options=console.options.update(width=_PIPE_COLUMNS)).maximum <= console.width:
        console.print(figures)
    else:
        console.print(_listed(report))
    console.print(_bars(report))
    for note in report.notes:
        console.print(Text(f"- {note}"))
    console.print(Text(f"seed {report.seed}, rounds {report.rounds}, {report.seconds:.1f} s"))


def _figures(report: Report) -> Table:
    """A row for each arm, a column for each figure."""
    names = dict.fromkeys(name for figures in report.arms.values() for name in figures)
    table = Table()
    table.add_column("arm", no_wrap=True)
    for name in names:
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    for arm, figures in report.arms.items():
        table.add_row(arm, *(_number(figures.get(name)) for name in names))
    return table


def _listed(report: Report) -> Group:
    """The same where the terminal is too narrow for it: a paragraph for each arm."""
    paragraphs: list[Text] = []
    for arm, figures in report.arms.items():
        said = ", ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in figures.items())
        paragraphs += [Text(arm, style="bold"), Text(f"  {said}")]
    return Group(*paragraphs)


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
    """For a control, ok means that it fails where the product must not."""
    if bar.ok:
        return Text("ok", style="green")
    return Text("missed", style="bold red" if bar.arm == "product" else "yellow")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
