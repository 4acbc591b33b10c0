"""Command `evenlane demo`: shows the isolation of tenants on real servers, next to the unfair control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from evenlane.engine.cli.options import Json  # noqa: TC001 - typer reads the annotations
from evenlane.engine.cli.output import print_json, with_examples
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from evenlane.engine.proof.demo.result import Result


def demo(
    *,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=3, max=3600, help="Duration of the load, in seconds.")
    ] = 20.0,
    projects: Annotated[
        int, typer.Option(metavar="N", min=2, max=5000, help="Number of projects; one of them is hot.")
    ] = 20,
    as_json: Json = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Show that one hot project delays no other: runs with it, without it, and first come, first served.

    Starts its own NATS and etcd in a temporary folder and removes them. Accounts for each message. Exit
    code 1 if a message was lost, or if the run doesn't show the isolation.

    Example:
      evenlane demo
      evenlane demo --seconds 60 --projects 1000 --json
    """
    del debug
    import signal

    from evenlane.engine.base.extras import require_extra
    from evenlane.engine.base.log_setup import setup
    from evenlane.engine.cli.signals import run_until_signal
    from evenlane.engine.proof.demo.story import Demo
    from evenlane.engine.runtime.run_loop import run_loop

    require_extra("servers", "evenlane demo needs the servers")
    setup("auto", "error")
    story = Demo(seconds, projects, quiet=as_json)
    result: Result = run_loop(run_until_signal(story.run(), signal.SIGTERM))  # servers and files are gone, too, by then
    if as_json:
        print_json(result.document())
    else:
        _show(result)
    if failure := result.failure():
        raise EvenlaneError(failure)


def _show(result: Result) -> None:
    from rich.console import Console

    from evenlane.engine.proof.demo.table import render_closing

    Console(highlight=False).print(render_closing(result))


demo.__doc__ = with_examples(demo.__doc__)
