"""Command `evenlane top`: shows the activity of all projects and nodes, live."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.cli.options import CommonOptions, Json, common_of_subscription, number, seconds
from evenlane.engine.cli.output import print_json
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cli.top.view_state import ViewState

_LEAST_S, _MOST_S = 0.5, 3600.0

_Interval = Annotated[
    float,
    typer.Option("--interval", parser=seconds, metavar="DURATION", help="Time between two updates, at least 0.5s."),
]
_Project = Annotated[str, typer.Option("--project", metavar="TEXT", help="Show only projects with TEXT in their name.")]
_Priority = Annotated[str | None, typer.Option("--priority", metavar="P", help="Show only this priority.")]
_Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="BY",
        help="Sort by status (default), backlog, rate, failed, dead, oldest, name, arriving, in-flight, quota or gone.",
    ),
]
_Limit = Annotated[int | None, typer.Option("--limit", parser=number, metavar="N", help="Show at most N projects.")]
_Count = Annotated[int | None, typer.Option("--count", parser=number, metavar="N", help="End after N plain tables.")]


@common_of_subscription
def top(
    given: CommonOptions,
    *,
    interval: _Interval = 2.0,
    project: _Project = "",
    priority: _Priority = None,
    sort: _Sort = "status",
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    limit: _Limit = None,
    totals: Annotated[bool, typer.Option("--totals", help="Show one line per project, not per priority.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain tables, as into a pipe.")] = False,
    count: _Count = None,
    once: Annotated[bool, typer.Option("--once", help="Print one plain table: --count 1.")] = False,
    as_json: Json = False,
) -> None:
    """Show projects and all nodes, live: status, rates, backlogs, ages, quotas, and wait reasons.

    Projects in trouble come first, then the busiest.

    In a terminal `?` lists the keys: sort, filter, explain or pause a project. Into a pipe, or with --plain, it prints
    one table after another. `?` stands for a figure that isn't known at the moment, `-` for none.
    The documentation describes the columns under "evenlane top".

    Example:
      evenlane top
      evenlane top --project acme --sort oldest --interval 5s
      evenlane top --once --limit 10
      evenlane top --json
    """
    choice = _choice(project, priority, sort, limit, reverse=reverse, totals=totals)
    _check(interval, count)
    settings = given.load_shared().settings
    from evenlane.engine.base.log_setup import setup

    setup(settings.log_format, settings.log_level)
    if as_json:
        _json(settings, choice)
    elif plain or once or count is not None or not _is_on_terminal():
        _plain(settings, choice, interval, 1 if once else count)
    else:
        _live(settings, choice, interval)


def _choice(
    project: str, priority: str | None, sort: str, limit: int | None, *, reverse: bool, totals: bool
) -> ViewState:
    from evenlane.engine.cli.top.view_state import ViewState, sort_named

    if limit is not None and limit < 1:
        raise ConfigError(f"--limit must be at least 1, not {limit}")
    return ViewState(project, priority, sort_named(sort), reverse, limit, totals)


def _check(interval: float, count: int | None) -> None:
    if not _LEAST_S <= interval <= _MOST_S:
        raise ConfigError(f"--interval must be from 0.5s to 1h, not {interval:g}s")
    if count is not None and count < 1:
        raise ConfigError(f"--count must be at least 1, not {count}")


def _is_on_terminal() -> bool:
    """Whether all three streams are terminals: the live app reads keys, and draws on stderr."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _json(settings: Settings, choice: ViewState) -> None:
    from evenlane.engine.cli.top.source import connect_source
    from evenlane.engine.cli.top.view_state import check, narrow
    from evenlane.engine.runtime.run_loop import run_loop

    async def work() -> object:
        async with connect_source(settings, "") as source:
            document = await source.overview()
        check(choice, document)
        return narrow(document, choice)

    print_json(run_loop(work()))


def _plain(settings: Settings, choice: ViewState, interval_s: float, count: int | None) -> None:
    import asyncio

    from evenlane.engine.cli.top.plain import follow
    from evenlane.engine.cli.top.source import connect_source
    from evenlane.engine.runtime.run_loop import run_loop
    from evenlane.engine.runtime.serve import on_signals

    async def work() -> None:
        stop = asyncio.Event()
        on_signals(stop.set)
        async with connect_source(settings, "") as source:
            await follow(source, choice, interval_s, count, stop)

    run_loop(work())


def _live(settings: Settings, choice: ViewState, interval_s: float) -> None:
    from evenlane.engine.admin.topics.author import current_author
    from evenlane.engine.base.extras import require_extra

    require_extra("top", "evenlane top needs its screen, unless --plain is given")
    by = current_author(None)
    from evenlane.engine.cli.top.source import connect_source
    from evenlane.engine.cli.top.terminal import run
    from evenlane.engine.runtime.run_loop import run_loop

    async def work() -> None:
        async with connect_source(settings, by) as source:
            await run(source, choice, interval_s)

    logging.disable()  # log lines would corrupt the screen, which shows the important ones
    try:
        run_loop(work())
    finally:
        logging.disable(logging.NOTSET)
