"""`evenlane demo`: the data path on real servers, and a ledger that accounts for every message."""

from typing import Annotated

import typer

from engine.cli.frame import print_json
from engine.cli.options import Json
from engine.cli.run import run_loop


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
    ledger = run_loop(Demo(seconds, projects, rate, live=not as_json).run())
    if as_json:
        print_json(ledger)
    if ledger["ledger"]["lost"]:
        raise typer.Exit(1)
