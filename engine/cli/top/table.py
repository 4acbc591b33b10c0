"""Tables of `evenlane top` as lines of text, fitted to the width. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.cli.top import formatting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlane.engine.cli.top.view_state import TenantLine

NO_MATCH = "no project matches"
_APART = 2  # spaces between columns
_LEAST = 8  # characters of the first column
_CUT = "…"


class Column(NamedTuple):
    """A column. `sort` is its sort order, if any. If room is short, the highest `spare` is dropped first."""

    name: str
    text: Callable[[Any], str]
    sort: str | None = None
    right: bool = True
    spare: int = 0


class Table(NamedTuple):
    """Lines of one width. `columns` has the start of each visible column."""

    header: str
    lines: list[str]
    columns: list[tuple[int, Column]]


TENANTS = (
    Column("PROJECT", lambda line: line.tenant["project"] if line.first else "", "name", right=False),
    Column("STATUS", lambda line: line.tenant["status"]["label"] if line.first else "", "status", right=False),
    Column("PRIORITY", lambda line: line.figures["priority"], right=False, spare=3),
    Column("BACKLOG", lambda line: formatting.count(line.figures["backlog"]), "backlog"),
    Column("OLDEST", lambda line: formatting.age(line.figures), "oldest"),
    Column("IN FLIGHT", lambda line: formatting.count(line.figures["in_flight"]), "in-flight", spare=7),
    Column("IN/S", lambda line: formatting.rate(line.figures["arriving"]), "arriving", spare=5),
    Column("HANDLED/S", lambda line: formatting.rate(line.figures["handled"]), "rate", spare=1),
    Column("FAILED/S", lambda line: formatting.rate(line.figures["failed"]), "failed"),
    Column("DEAD/S", lambda line: formatting.rate(line.figures["dead"]), "dead", spare=6),
    Column("GONE IN", lambda line: formatting.format_gone(line.figures), "gone", spare=8),
    Column("QUOTA", lambda line: formatting.quota(line.tenant) if line.first else "", "quota", spare=4),
    Column("WAITS FOR", lambda line: line.figures["reason"] or formatting.NOTHING, right=False, spare=2),
)

NODES = (
    Column("NODE", lambda node: f"{node['id']}{'*' if node['leader'] else ''}", right=False),
    Column("PARTITIONS", lambda node: formatting.count(len(node["partitions"]))),
    Column("BACKLOG", lambda node: formatting.count(node["backlog"])),
    Column("IN FLIGHT", lambda node: formatting.count(node["in_flight"])),
    Column("SLOTS", lambda node: formatting.count(node["slots"]), spare=1),
    Column("IN/S", lambda node: formatting.rate(node["arriving"]), spare=2),
    Column("HANDLED/S", lambda node: formatting.rate(node["handled"])),
    Column("FAILED/S", lambda node: formatting.rate(node["failed"]), spare=2),
    Column("CPU", lambda node: formatting.share(node["cpu"])),
    Column("LEASE", lambda node: formatting.seconds(node["lease_seconds"]), spare=3),
    Column("LOOP LAG", lambda node: formatting.seconds(node["loop_lag_seconds"]), spare=5),
    Column("SETTLE LAG", lambda node: formatting.seconds(node["settle_lag_seconds"]), spare=4),
    Column("HOST", lambda node: node["host"] or formatting.NOTHING, right=False, spare=6),
)


def table(
    columns: Sequence[Column],
    rows: Iterable[Any],
    room: int | None = None,
    *,
    sort: str = "",
    mark: str = "",
    least: Mapping[str, int] | None = None,
) -> Table:
    """Build a table as wide as its cells. If `room` is smaller, columns are dropped, and finally names are cut. `mark`
    is appended to the name of the column sorted by; `least` has minimum widths by column name.
    """
    heads = [f"{column.name}{mark if column.sort == sort else ''}" for column in columns]
    cells = [heads, *([column.text(row) for column in columns] for row in rows)]
    widths = [
        max(*map(len, column), (least or {}).get(each.name, 0))
        for each, column in zip(columns, zip(*cells, strict=True), strict=True)
    ]
    kept = _choose_columns(columns, widths, room)
    if room is not None:
        widths[0] += min(0, room - _width(widths, kept))
        widths[0] = max(widths[0], min(_LEAST, max(len(line[0]) for line in cells)))
    header, *lines = (_line([(row[each], widths[each], columns[each].right) for each in kept]) for row in cells)
    starts = [sum(widths[before] + _APART for before in kept[:number]) for number in range(len(kept))]
    return Table(header, lines, [(start, columns[each]) for start, each in zip(starts, kept, strict=True)])


def widths(made: Table) -> dict[str, int]:
    """Return minimum widths for the next table, so that its columns don't jump."""
    starts = [start for start, _ in made.columns]
    ends = [start - _APART for start in starts[1:]]
    return {column.name: end - start for (start, column), end in zip(made.columns[:-1], ends, strict=True) if start}


def summary(document: Mapping[str, Any], *, nodes: bool = True) -> str:
    totals, living = document["totals"], len(document["nodes"])
    return (
        f"{_many(living, 'node') + ', ' if nodes else ''}{_many(totals['projects'], 'project')},"
        f" {totals['backlog']:,} wait, {totals['in_flight']:,} in flight, {formatting.rate(totals['arriving'])}/s in,"
        f" {formatting.rate(totals['handled'])}/s handled, {formatting.rate(totals['failed'])}/s failed"
    )


def rest(document: Mapping[str, Any], shown: Sequence[TenantLine], matching: int) -> str:
    """Describe the part that the table doesn't show; empty if it shows all."""
    hidden = matching - len({line.tenant["project"] for line in shown})
    parts = [f"{hidden:,} more of these"] if hidden else []
    if (left := document["left_out"]) is not None and left["projects"]:
        parts.append(
            f"{_many(left['projects'], 'less busy project')} counted together: {left['backlog']:,} wait,"
            f" {left['in_flight']:,} in flight, {formatting.rate(left['handled'])}/s handled,"
            f" {formatting.rate(left['failed'])}/s failed"
        )
    return "; ".join(parts)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _choose_columns(columns: Sequence[Column], widths: Sequence[int], room: int | None) -> list[int]:
    kept = [*range(len(columns))]
    spare = sorted((each for each in kept if columns[each].spare), key=lambda each: -columns[each].spare)
    shortest = [min(widths[0], 2 * _LEAST), *widths[1:]]
    for each in spare:
        if room is None or _width(shortest, kept) <= room:
            break
        kept.remove(each)
    return kept


def _width(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[each] for each in kept) + _APART * (len(kept) - 1)


def _line(cells: Iterable[tuple[str, int, bool]]) -> str:
    return (" " * _APART).join(_cell(*cell) for cell in cells).rstrip()


def _cell(text: str, width: int, right: bool) -> str:
    cut = text if len(text) <= width else f"{text[: max(0, width - 1)]}{_CUT}"
    return cut.rjust(width) if right else cut.ljust(width)
