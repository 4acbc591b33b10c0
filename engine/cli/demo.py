"""`evenlane demo`: the data path on real servers, and a ledger that accounts for every message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.frame import print_json, with_examples
from engine.cli.options import Json  # noqa: TC001 - typer reads the annotations
from engine.cli.run import run_loop

if TYPE_CHECKING:
    from engine.demo import Demo


def demo(
    *,
    seconds: Annotated[float, typer.Option(metavar="S", min=1, max=3600, help="How long to put.")] = 10.0,
    projects: Annotated[int, typer.Option(metavar="N", min=1, max=5000, help="Tenants.")] = 300,
    rate: Annotated[int, typer.Option(metavar="R", min=1, max=100_000, help="Messages put per second.")] = 3000,
    as_json: Json = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Put messages of many projects in three priorities, fail one attempt in twenty, account for each.

    Starts its own NATS and etcd in a temporary folder and removes them. Exit code 1 if anything was lost.

    Example:
      evenlane demo
      evenlane demo --seconds 30 --projects 1000 --json
    """
    del debug
    from engine.demo import Demo
    from engine.logs import setup

    setup("auto", "error")
    ledger = run_loop(_until_told(Demo(seconds, projects, rate, live=not as_json)))
    if ledger is None:
        raise typer.Exit(143)
    if as_json:
        print_json(ledger)
    if ledger["ledger"]["lost"]:
        raise typer.Exit(1)


async def _until_told(story: Demo) -> dict[str, Any] | None:
    """The ledger; None if SIGTERM came first, in which case servers and files are gone all the same."""
    import asyncio
    import signal

    task = asyncio.create_task(story.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        if task.cancelled() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
            return None
        raise


demo.__doc__ = with_examples(demo.__doc__)
