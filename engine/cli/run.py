"""`evenlane run`: a node until SIGTERM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import Given, common

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.engine import Engine

_FAREWELL_S = 1.0

HandlerSpec = Annotated[str, typer.Option("--handler", metavar="MODULE:FUNCTION", help="What handles a message.")]
Concurrency = Annotated[str | None, typer.Option("--concurrency", metavar="W", help="Handlers at once.")]


@common
def run(
    given: Given,
    *,
    handler: HandlerSpec,
    node: Annotated[str | None, typer.Option("--node", metavar="ID", help="The node's name.")] = None,
    concurrency: Concurrency = None,
    lease_ttl: Annotated[str | None, typer.Option("--lease-ttl", metavar="S", help="Seconds.")] = None,
    drain_grace: Annotated[
        str | None, typer.Option("--drain-grace", metavar="S", help="Time a drain may take.")
    ] = None,
) -> None:
    """Run a node: handle the messages of the environment until SIGTERM, then drain.

    Prints one line on stdout once it serves or stands by. Logs go to stderr.

    Example:
      evenlane run --handler shop.jobs:handle
      evenlane run --handler shop.jobs:handle --node worker-1 --concurrency 200
    """
    loaded = given.load(node=node, concurrency=concurrency, lease_ttl=lease_ttl, drain_grace=drain_grace)
    from engine import packages
    from engine.logs import setup

    setup(loaded.settings.log_format, loaded.settings.log_level)
    packages.check()
    from engine.engine import Engine
    from engine.node.handlers import load

    call = load(handler)
    told: list[int] = []

    def ready(partitions: int) -> None:
        if not told:
            told.append(partitions)
            print(f"ready node={engine.id} partitions={partitions} generation=0", flush=True)  # noqa: T201

    engine = Engine(call, settings=loaded.settings, on_ready=ready)
    clean = run_loop(serve(engine))
    if not clean:
        raise typer.Exit(1)


async def serve(engine: Engine) -> bool:
    """Run a node until SIGTERM or SIGINT; whether it ended clean."""
    on_signals(engine.stop)
    async with engine:
        return await engine.run()


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT; a second SIGINT interrupts."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()

    def once() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, once)


def run_loop(work: Any) -> Any:
    """Run a coroutine to its end on uvloop. What goes on after that, against its cancellation, is left behind."""
    import uvloop

    from engine.collector import relax

    relax()
    return uvloop.run(_bounded(work))


async def _bounded(work: Any) -> Any:
    """The ending that asyncio has would wait for ever for a handler that ignores its cancellation."""
    import asyncio
    import os
    import sys

    result = await work
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others and (await asyncio.wait(others, timeout=_FAREWELL_S))[1]:
        print("evenlane: a handler ignores its cancellation: leaving without it", file=sys.stderr)  # noqa: T201
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    return result
